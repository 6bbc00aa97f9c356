#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "files/atomic_file.h"
#include "report/run_files.h"

namespace strata::report {

namespace {

using Json = nlohmann::ordered_json;

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

/// Microseconds to the nanosecond: neighbouring spans that share a moment print it alike.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// The events, one a line, in a file that may be larger than memory should hold twice.
class Events {
 public:
  explicit Events(files::AtomicFile& file) : file_(file) {}
  ~Events() = default;
  void add(const std::string& event) {
    text_ += first_ ? "\n" : ",\n";
    text_ += event;
    first_ = false;
    if (text_.size() > size_t{1} << 20) flush();
  }
  void flush() {
    file_.write(text_);
    text_.clear();
  }

 private:
  files::AtomicFile& file_;
  std::string text_;
  bool first_ = true;
};

std::string stream_name(const train::TimelineReport& timeline, step::StreamId stream) {
  if (stream == 0) return "compute";
  const auto number = static_cast<size_t>(stream);
  return number < timeline.stream_names.size() ? timeline.stream_names[number] : fmt::format("stream {}", stream);
}

std::string levels_text(const train::TimelineReport& timeline, const step::TaskLabel& label) {
  std::string text;
  for (int32_t level = label.first_level; level < label.last_level; ++level)
    text += (text.empty() ? "" : "+") + timeline.level_names.at(static_cast<size_t>(level));
  return text;
}

std::string number_or_null(int32_t number) { return number < 0 ? "null" : std::to_string(number); }

void add_rank(Events& events, const train::TimelineReport& timeline, size_t rank) {
  const train::RankTimeline& of = timeline.ranks[rank];
  STRATA_CHECK(of.spans.size() == of.tasks.size());
  events.add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank));
  events.add(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", rank));
  step::StreamId streams = 0;
  for (const step::Span& span : of.spans) streams = std::max(streams, span.stream + 1);
  std::vector<std::vector<const step::Span*>> by_stream(static_cast<size_t>(streams));
  for (const step::Span& span : of.spans) by_stream[static_cast<size_t>(span.stream)].push_back(&span);

  for (step::StreamId stream = 0; stream < streams; ++stream) {
    const auto& spans = by_stream[static_cast<size_t>(stream)];
    if (spans.empty()) continue;
    const std::string name = stream_name(timeline, stream);
    events.add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", rank, stream,
                           json_string(name)));
    events.add(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}})",
                           rank, stream));
    const std::string counter = json_string("sent: " + name);
    for (const step::Span* span : spans) {
      const auto task = static_cast<size_t>(span - of.spans.data());
      const step::TaskLabel& label = of.tasks[task];
      const int64_t begin = nanoseconds(span->begin), end = std::max(begin, nanoseconds(span->end));
      std::string args = fmt::format(R"("task":{},"unit":{},"micro_batch":{})", task, number_or_null(label.unit),
                                     number_or_null(label.micro_batch));
      if (label.transfer())
        args += fmt::format(R"(,"levels":{},"wire":{},"bytes":{},"messages":{},"sequence":{})",
                            json_string(levels_text(timeline, label)), json_string(label.wire.data()), label.bytes,
                            label.messages, label.sequence);
      events.add(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                             json_string(label.name.data()), label.transfer() ? "transfer" : "compute", rank, stream,
                             microseconds(begin), microseconds(end - begin), args));
      if (!label.transfer() || end == begin) continue;
      for (const auto& [at, rate] :
           {std::pair{begin, static_cast<double>(label.bytes) / static_cast<double>(end - begin)}, std::pair{end, 0.0}})
        events.add(fmt::format(R"({{"ph":"C","name":{},"pid":{},"ts":{},"args":{{"GB/s":{:.6g}}}}})", counter, rank,
                               microseconds(at), rate));
    }
  }
}

}  // namespace

void write_trace(const std::filesystem::path& path, const train::TimelineReport& timeline) {
  files::AtomicFile file(path);
  Json other = {{"format", 1}, {"step", timeline.step}, {"ranks", timeline.ranks.size()}};
  other["clock_error_us"] = Json::array();
  for (const train::RankTimeline& rank : timeline.ranks) other["clock_error_us"].push_back(rank.clock_error * 1e6);
  file.write(fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\n\"traceEvents\":[", other.dump()));
  Events events(file);
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) add_rank(events, timeline, rank);
  events.flush();
  file.write("\n]}\n");
  file.commit();
}

TraceSummary summarise(const train::TimelineReport& timeline) {
  double begin = 0, end = 0;
  bool any = false;
  std::vector<double> computing;
  for (const train::RankTimeline& rank : timeline.ranks) {
    double& busy = computing.emplace_back(0);
    for (const step::Span& span : rank.spans) {
      begin = any ? std::min(begin, span.begin) : span.begin;
      end = any ? std::max(end, span.end) : span.end;
      any = true;
      if (span.stream == 0) busy += span.end - span.begin;
    }
  }
  TraceSummary summary{.seconds = end - begin};
  if (computing.empty() || !(summary.seconds > 0)) return summary;
  const auto least = std::min_element(computing.begin(), computing.end());
  const auto most = std::max_element(computing.begin(), computing.end());
  summary.least = *least / summary.seconds;
  summary.most = *most / summary.seconds;
  summary.least_rank = static_cast<size_t>(least - computing.begin());
  summary.most_rank = static_cast<size_t>(most - computing.begin());
  return summary;
}

void TraceFiles::on_start(const train::RunStart& start) {
  STRATA_CHECK(start.job != nullptr);
  folder_ = start.folder;
  if (start.first_step > 0) return;
  for (int64_t step : start.job->run.trace) move_aside(trace_file(folder_, step));
}

void TraceFiles::on_timeline(const train::TimelineReport& timeline) {
  write_trace(trace_file(folder_, timeline.step), timeline);
}

}  // namespace strata::report
