#include "report/trace.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "files/json.h"
#include "report/example_run.h"
#include "report/run_files.h"

namespace strata::report {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

step::TaskLabel label(const std::string& name, int32_t unit, int32_t micro_batch) {
  step::TaskLabel label{.unit = unit, .micro_batch = micro_batch};
  std::copy(name.begin(), name.end(), label.name.begin());
  return label;
}

step::TaskLabel transfer(const std::string& name, const std::string& wire, int32_t first, int32_t last,
                         int32_t sequence, int64_t bytes) {
  step::TaskLabel result = label(name, 1, 0);
  std::copy(wire.begin(), wire.end(), result.wire.begin());
  result.first_level = first, result.last_level = last, result.sequence = sequence, result.bytes = bytes;
  result.messages = 1;
  return result;
}

/// Two ranks: a gather over package and node, then a forward; rank 1 a quarter of a second later.
train::TimelineReport example() {
  train::TimelineReport report{.step = 7,
                               .level_names = {"package", "node \"a\""},
                               .stream_names = {"compute", "package", "node \"a\""},
                               .ranks = {}};
  for (int rank = 0; rank < 2; ++rank) {
    const double shift = 0.25 * rank;
    report.ranks.push_back({.clock_error = 1e-6 * rank,
                            .tasks = {transfer("all-gather weights_forward layer.0", "int8", 0, 2, 3, 500'000'000),
                                      label("layer.0 forward", 1, 0), label("clip", -1, -1)},
                            .spans = {{0, 2, shift, shift + 0.5},
                                      {1, 0, shift + 0.5, shift + 1.000000001},
                                      {2, 0, shift + 1.000000001, shift + 1.5}}});
  }
  return report;
}

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

TEST(Trace, IsWhatPerfettoReads) {
  TemporaryFolder folder;
  const fs::path file = folder.path() / "trace.json";
  write_trace(file, example());
  const json trace = files::parse_json(read_file(file), file.string());
  EXPECT_EQ(trace["otherData"]["step"], 7);
  EXPECT_EQ(trace["otherData"]["ranks"], 2);
  EXPECT_EQ(trace["otherData"]["clock_error_us"], json::parse("[0.0, 1.0]"));

  std::map<std::string, std::vector<std::string>> names;
  for (const json& event : events_of(trace, "M"))
    if (event["args"].contains("name")) names[event["name"]].push_back(event["args"]["name"]);
  EXPECT_THAT(names["process_name"], ElementsAre("rank 0", "rank 1"));
  EXPECT_THAT(names["thread_name"], ElementsAre("compute", "node \"a\"", "compute", "node \"a\""));

  const std::vector<json> spans = events_of(trace, "X");
  ASSERT_EQ(spans.size(), 6u);
  EXPECT_EQ(spans[0], json::parse(R"({"ph":"X","name":"layer.0 forward","cat":"compute","pid":0,"tid":0,"ts":500000.0,
    "dur":500000.001,"args":{"task":1,"unit":1,"micro_batch":0}})"));
  EXPECT_EQ(spans[1]["args"], json::parse(R"({"task":2,"unit":null,"micro_batch":null})"));
  EXPECT_EQ(spans[1]["ts"], 1000000.001);
  EXPECT_EQ(spans[5],
            json::parse(R"({"ph":"X","name":"all-gather weights_forward layer.0","cat":"transfer","pid":1,"tid":2,
    "ts":250000.0,"dur":500000.0,"args":{"task":0,"unit":1,"micro_batch":0,"levels":"package+node \"a\"","wire":"int8",
    "bytes":500000000,"messages":1,"sequence":3}})"));

  const std::vector<json> counters = events_of(trace, "C");
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[0]["args"]["GB/s"], 1.0);
  EXPECT_EQ(counters[1]["args"]["GB/s"], 0.0);
  EXPECT_EQ(counters[1]["ts"], 500000.0);
}

TEST(Trace, SummaryIsTheShareThatRanksCompute) {
  train::TimelineReport report = example();
  report.ranks[1].spans[2].end = 1.5;
  const TraceSummary summary = summarise(report);
  EXPECT_DOUBLE_EQ(summary.seconds, 1.5);
  EXPECT_EQ(summary.least_rank, 1u);
  EXPECT_DOUBLE_EQ(summary.least, 0.75 / 1.5);
  EXPECT_EQ(summary.most_rank, 0u);
  EXPECT_DOUBLE_EQ(summary.most, 1 / 1.5);
  EXPECT_EQ(summarise({}).seconds, 0);
}

TEST(Trace, GoesToTheRunsFolderAndAnOlderOneAside) {
  TemporaryFolder folder;
  ExampleRun run(folder.path());
  run.job.run.trace = {7, 9};
  write_file(trace_file(folder.path(), 7), "older");
  write_file(trace_file(folder.path(), 8), "not ours");
  TraceFiles traces;
  traces.on_start(run.start);
  traces.on_timeline(example());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("trace-step-7.json", "trace-step-7.json.1", "trace-step-8.json"));
  EXPECT_EQ(read_file(trace_file(folder.path(), 7).string() + ".1"), "older");

  // A run that goes on keeps those of the steps before it.
  run.start.first_step = 8;
  TraceFiles resumed;
  resumed.on_start(run.start);
  EXPECT_EQ(names_in(folder.path()).size(), 3u);
}

TEST(Trace, AFullDiskIsARunErrorAndLeavesNoPart) {
  TemporaryFolder folder;
  const fs::path file = folder.path() / "trace.json";
  const FileSizeLimit limit(100);
  EXPECT_THAT(message_of(Fault::run, [&] { write_trace(file, example()); }), HasSubstr(file.string()));
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

}  // namespace
}  // namespace strata::report
