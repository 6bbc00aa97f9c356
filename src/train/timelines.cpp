#include "train/timelines.h"

#include <algorithm>
#include <span>

#include "train/clock.h"

namespace strata::train {

TimelineReport collect_timelines(comm::Control* control, const execute::Executor& executor, int64_t step) {
  constexpr const char* what = "collecting a step's timelines";
  const step::Program& program = executor.program();
  RankTimeline mine{.tasks = step::task_labels(program), .spans = executor.timeline()};
  struct Head {
    int64_t started = 0;  ///< on the rank's own clock
    int64_t tasks = 0;
  };
  const Head head{steady_nanoseconds(executor.started()), static_cast<int64_t>(mine.spans.size())};

  TimelineReport report{
      .step = step, .level_names = program.level_names, .stream_names = program.stream_names, .ranks = {}};
  std::vector<Head> heads = {head};
  std::vector<ClockOffset> offsets(1);
  if (control) {
    offsets = measure_clocks(*control);
    heads = control->gather(head, what);
    if (control->rank() != 0) {
      control->send(0, std::as_bytes(std::span(mine.tasks)), what);
      control->send(0, std::as_bytes(std::span(mine.spans)), what);
      return {};
    }
  }
  report.ranks.resize(heads.size());
  report.ranks[0] = std::move(mine);
  for (size_t rank = 1; rank < heads.size(); ++rank) {
    RankTimeline& theirs = report.ranks[rank];
    theirs.tasks.resize(static_cast<size_t>(heads[rank].tasks));
    theirs.spans.resize(static_cast<size_t>(heads[rank].tasks));
    theirs.clock_error = static_cast<double>(offsets[rank].error) * 1e-9;
    control->receive(static_cast<int64_t>(rank), std::as_writable_bytes(std::span(theirs.tasks)), what);
    control->receive(static_cast<int64_t>(rank), std::as_writable_bytes(std::span(theirs.spans)), what);
  }
  std::vector<int64_t> starts;
  for (size_t rank = 0; rank < heads.size(); ++rank) starts.push_back(heads[rank].started + offsets[rank].nanoseconds);
  const int64_t first = *std::min_element(starts.begin(), starts.end());
  for (size_t rank = 0; rank < heads.size(); ++rank) {
    const double shift = static_cast<double>(starts[rank] - first) * 1e-9;
    for (step::Span& span : report.ranks[rank].spans) span.begin += shift, span.end += shift;
  }
  return report;
}

}  // namespace strata::train
