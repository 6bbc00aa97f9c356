// What a run on several ranks, as threads, leaves behind: its ledger, and the timeline of a real step.

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "comm/local.h"
#include "device/device.h"
#include "files/json.h"
#include "report/example_run.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/run_files.h"
#include "report/tensorboard.h"
#include "report/trace.h"
#include "step/build.h"
#include "step/small_job.h"
#include "train/small_data.h"
#include "train/trainer.h"

namespace strata::report {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t ranks = 8;

class RanksRun : public testing::Test {
 protected:
  void SetUp() override {
    train::write_dataset(folder_.path() / "data", 20000, 211);
    job_ = step::small_job(model::Family::gpt_neox);
    job_.model.layers = 2;
    job_.data.train = {{(folder_.path() / "data").string(), 1}};
    job_.data.validation = (folder_.path() / "data").string();
    job_.mesh.levels = {{"package", 2}, {"node", 2}, {"system", 2}};
    job_.batch = {.global = 16, .micro = 1, .sequence = 24};
    job_.placement.preset = "zero-topo";
    job_.run.steps = 3;
    job_.run.trace = {2};
    job_.run.validate = {.every = 2, .batches = 1};
    job_.run.folder = run_folder().string();
    fs::create_directories(run_folder());
  }
  fs::path run_folder() const { return folder_.path() / "run"; }

  /// Trains with all listeners on rank 0. What Progress printed.
  std::string train() {
    char* text = nullptr;
    size_t size = 0;
    std::FILE* out = ::open_memstream(&text, &size);
    comm::on_local_ranks(ranks, [&](comm::Transport& transport) {
      const auto device = device::make_cpu(1);
      Metrics metrics;
      TensorBoard tensorboard;
      TraceFiles traces;
      Progress progress({.out = out, .terminal = false});
      std::vector<train::Observer*> observers;
      if (transport.rank() == 0) observers = {&metrics, &tensorboard, &traces, &progress};
      train::train(job_, *device, observers, true, {.transport = &transport, .timeout = 60});
    });
    std::fclose(out);
    const std::string printed(text, size);
    std::free(text);
    return printed;
  }
  std::vector<json> records() const {
    std::vector<json> result;
    std::istringstream lines(read_file(metrics_file(run_folder())));
    for (std::string line; std::getline(lines, line);) result.push_back(files::parse_json(line, "metrics.jsonl"));
    return result;
  }
  step::Program program(int64_t rank, step::Goal goal = step::Goal::train) const {
    return step::build({.job = job_, .ranks = ranks, .rank = rank}, goal, *device::make_planner(1));
  }

  TemporaryFolder folder_;
  job::Job job_;
};

/// What the programs of all ranks list for the run: three steps, and validations after steps 2 and 3.
step::Traffic listed(const std::function<step::Program(int64_t, step::Goal)>& program) {
  step::Traffic all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    all.add(step::traffic(program(rank, step::Goal::train)), 3);
    all.add(step::traffic(program(rank, step::Goal::evaluate)), 2);
  }
  return all;
}

TEST_F(RanksRun, LedgerIsWhatTheProgramsOfAllRanksList) {
  const std::string printed = train();
  EXPECT_THAT(printed, HasSubstr("sent = counted"));
  EXPECT_THAT(printed, HasSubstr("package    weights_forward  int8"));

  const std::vector<json> all = records();
  const json& start = all.front();
  EXPECT_EQ(start["ranks"], ranks);
  EXPECT_EQ(start["levels"][1], json::parse(R"({"name":"node","width":2})"));
  EXPECT_EQ(start["placement"]["weights"], "package");
  EXPECT_TRUE(start["placement"]["secondary"].is_null());
  EXPECT_EQ(start["placement"]["optimizer"], "system");
  EXPECT_EQ(all.back()["record"], "end");
  const json& traffic = all[all.size() - 2];
  ASSERT_EQ(traffic["record"], "traffic");
  EXPECT_EQ(traffic["as_planned"], true);
  EXPECT_EQ(traffic["step"], 3);

  const step::Traffic expected = listed([&](int64_t rank, step::Goal goal) { return program(rank, goal); });
  const step::Program any = program(0);
  step::Traffic written;
  comm::Sent sum;
  for (const json& entry : traffic["entries"]) {
    const auto level = std::find(any.level_names.begin(), any.level_names.end(), entry["level"].get<std::string>());
    for (int purpose = 0; purpose < step::purposes; ++purpose)
      if (entry["purpose"] == name_of(static_cast<step::Purpose>(purpose)))
        written.at({static_cast<int32_t>(level - any.level_names.begin()), static_cast<step::Purpose>(purpose),
                    entry["wire"]}) = {entry["bytes"], entry["messages"]};
    EXPECT_EQ(entry["bytes"], entry["planned_bytes"]);
    EXPECT_EQ(entry["messages"], entry["planned_messages"]);
    sum.bytes += entry["bytes"].get<int64_t>(), sum.messages += entry["messages"].get<int64_t>();
  }
  EXPECT_EQ(written, expected);
  EXPECT_EQ(traffic["bytes"], sum.bytes);
  EXPECT_EQ(traffic["planned_messages"], sum.messages);
}

TEST_F(RanksRun, TraceHoldsEveryTaskOfEveryRankOnOneClock) {
  const std::string printed = train();
  EXPECT_THAT(printed, HasSubstr("step 2: traced on 8 ranks"));
  const fs::path file = trace_file(run_folder(), 2);
  const json trace = files::parse_json(read_file(file), file.string());
  EXPECT_EQ(trace["otherData"]["step"], 2);
  double slack = 0.002;  // times are written to the nanosecond
  for (const json& error : trace["otherData"]["clock_error_us"]) slack = std::max(slack, 2 * error.get<double>());

  struct Span {
    double begin, end;
  };
  std::vector<std::set<int64_t>> tasks(ranks);
  std::map<std::pair<int64_t, int64_t>, std::vector<Span>> streams;  // by rank and stream
  std::map<int64_t, std::map<int64_t, Span>> transfers;              // by sequence and rank
  std::vector<step::Program> programs;
  for (int64_t rank = 0; rank < ranks; ++rank) programs.push_back(program(rank));
  step::Traffic sent;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const auto rank = event["pid"].get<int64_t>();
    const json& args = event["args"];
    const auto number = args["task"].get<size_t>();
    ASSERT_LT(number, programs.at(static_cast<size_t>(rank)).tasks.size());
    EXPECT_TRUE(tasks[static_cast<size_t>(rank)].insert(static_cast<int64_t>(number)).second) << "twice: " << event;
    const step::Program& of = programs[static_cast<size_t>(rank)];
    const step::Task& task = of.tasks[number];
    EXPECT_EQ(event["tid"], task.stream);
    EXPECT_EQ(args["micro_batch"].is_null() ? -1 : args["micro_batch"].get<int32_t>(), task.micro_batch);
    const Span span{event["ts"], event["ts"].get<double>() + event["dur"].get<double>()};
    EXPECT_GE(span.begin, 0);
    EXPECT_GE(span.end, span.begin);
    streams[{rank, task.stream}].push_back(span);
    if (const auto* transfer = std::get_if<step::Transfer>(&task.work)) {
      EXPECT_EQ(args["sequence"], transfer->sequence);
      EXPECT_EQ(args["wire"], step::wire_name(transfer->hop.wire));
      EXPECT_THAT(event["name"].get<std::string>(), HasSubstr(std::string(name_of(transfer->hop.collective))));
      transfers[transfer->sequence][rank] = span;
      sent.at({0, step::Purpose::loss, ""}).bytes += args["bytes"].get<int64_t>();
      sent.at({0, step::Purpose::loss, ""}).messages += args["messages"].get<int64_t>();
    } else {
      EXPECT_EQ(event["cat"], "compute");
    }
  }
  comm::Sent listed;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    EXPECT_EQ(tasks[rank].size(), programs[rank].tasks.size()) << "rank " << rank;
    const step::Traffic of_rank = step::traffic(programs[rank]);
    for (const auto& [key, entry] : of_rank.entries()) listed.bytes += entry.bytes, listed.messages += entry.messages;
  }
  EXPECT_EQ(sent.at({0, step::Purpose::loss, ""}), listed);

  for (auto& [stream, spans] : streams) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < spans.size(); ++i)
      EXPECT_GE(spans[i].begin, spans[i - 1].end - 0.002) << "rank " << stream.first << ", stream " << stream.second;
  }
  // Nobody is done with a transfer before all who take part have begun it.
  for (const step::Program& of : programs)
    for (const step::Task& task : of.tasks) {
      const auto* transfer = std::get_if<step::Transfer>(&task.work);
      if (!transfer) continue;
      for (const int64_t peer : step::members_of(of, *transfer))
        EXPECT_GE(transfers[transfer->sequence][of.rank].end + slack, transfers[transfer->sequence][peer].begin)
            << "sequence " << transfer->sequence << ", ranks " << of.rank << " and " << peer;
    }
}

TEST_F(RanksRun, ATraceThatCannotBeWrittenEndsTheRunOnAllRanks) {
  fs::create_directory(trace_file(run_folder(), 2));  // empty, so it is nothing to move aside
  TraceFiles traces;
  const std::string message = message_of(Fault::run, [&] {
    comm::on_local_ranks(ranks, [&](comm::Transport& transport) {
      const auto device = device::make_cpu(1);
      std::vector<train::Observer*> observers;
      if (transport.rank() == 0) observers = {&traces};
      train::train(job_, *device, observers, true, {.transport = &transport, .timeout = 60});
    });
  });
  EXPECT_THAT(message, HasSubstr("trace-step-2.json"));
}

}  // namespace
}  // namespace strata::report
