#include "step/exposed.h"

#include <algorithm>

#include "core/error.h"

namespace strata::step {

namespace {

constexpr TaskId none = -1;

class Causes {
 public:
  Causes(const Program& program, const Timeline& timeline) : program_(program), timeline_(timeline) {
    std::vector<TaskId> last;
    for (size_t t = 0; t < program.tasks.size(); ++t) {
      const auto stream = static_cast<size_t>(program.tasks[t].stream);
      if (last.size() <= stream) last.resize(stream + 1, none);
      before_.push_back(last[stream]);
      last[stream] = static_cast<TaskId>(t);
    }
  }

  double end(TaskId task) const { return timeline_[static_cast<size_t>(task)].end; }

  /// The transfer that a task waits for longest; `on_stream`: counting the one before it on its stream.
  TaskId latest_transfer(TaskId task, bool on_stream) const {
    TaskId latest = none;
    const auto consider = [&](TaskId each) {
      if (each == none || !std::holds_alternative<Transfer>(program_.tasks[static_cast<size_t>(each)].work)) return;
      if (latest == none || end(each) > end(latest)) latest = each;
    };
    const Task& of = program_.tasks[static_cast<size_t>(task)];
    for (int32_t e = of.after.begin; e < of.after.end; ++e) consider(program_.edges[static_cast<size_t>(e)]);
    if (on_stream) consider(before_[static_cast<size_t>(task)]);
    return latest;
  }

  /// Lays [begin, until) to `transfer` and what it waited for. Returns how much found a cause.
  double lay(double begin, double until, TaskId transfer, std::vector<Exposed>& exposed) const {
    const double all = until - begin;
    while (transfer != none && until > begin) {
      const TaskId earlier = latest_transfer(transfer, true);
      const double from = std::max(begin, earlier == none ? begin : std::min(until, end(earlier)));
      add(std::get<Transfer>(program_.tasks[static_cast<size_t>(transfer)].work), until - from, exposed);
      until = from;
      transfer = earlier;
    }
    return all - (until - begin);
  }

 private:
  static void add(const Transfer& transfer, double seconds, std::vector<Exposed>& exposed) {
    if (seconds <= 0) return;
    for (Exposed& each : exposed)
      if (each.purpose == transfer.purpose && each.first_level == transfer.first_level &&
          each.last_level == transfer.last_level) {
        each.seconds += seconds;
        return;
      }
    exposed.push_back({transfer.purpose, transfer.first_level, transfer.last_level, seconds});
  }

  const Program& program_;
  const Timeline& timeline_;
  std::vector<TaskId> before_;  ///< by task: the one before it on its stream
};

}  // namespace

StepTime step_time(const Program& program, const Timeline& timeline) {
  STRATA_CHECK(timeline.size() == program.tasks.size());
  const Causes causes(program, timeline);
  StepTime time;
  double computed = 0;  // until when
  TaskId last = none;
  for (size_t t = 0; t < timeline.size(); ++t) {
    const Span& span = timeline[t];
    time.seconds = std::max(time.seconds, span.end);
    if (!program.block_of(program.tasks[t])) {
      if (last == none || span.end > causes.end(last)) last = static_cast<TaskId>(t);
      continue;
    }
    const TaskId cause = causes.latest_transfer(static_cast<TaskId>(t), false);
    // Only until that transfer is done: the rest of the wait is the host's.
    const double until = cause == none ? computed : std::clamp(causes.end(cause), computed, span.begin);
    time.idle += span.begin - until;
    time.idle += until - computed - causes.lay(computed, until, cause, time.exposed);
    time.computing += span.end - span.begin;
    computed = span.end;
  }
  if (time.seconds > computed)
    time.idle += time.seconds - computed - causes.lay(computed, time.seconds, last, time.exposed);
  std::sort(time.exposed.begin(), time.exposed.end(),
            [](const Exposed& a, const Exposed& b) { return a.seconds > b.seconds; });
  return time;
}

}  // namespace strata::step
