#include "report/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "files/json.h"
#include "report/example_run.h"
#include "report/run_files.h"

namespace strata::report {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// Every line of the file, parsed strictly.
std::vector<json> records_of(const fs::path& file) {
  std::vector<json> records;
  const std::string text = read_file(file);
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) records.push_back(files::parse_json(line, file.string()));
  return records;
}

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(Metrics, StartRecordSaysWhatTheNumbersMean) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  Metrics metrics({.flops = 2e12, .name = "made-up die, fp32 dense"});
  metrics.on_start(run.start);
  const std::vector<json> records = records_of(metrics_file(folder.path()));
  ASSERT_EQ(records.size(), 1u);
  const json& start = records[0];
  EXPECT_EQ(start["record"], "start");
  EXPECT_EQ(start["format"], 1);
  EXPECT_EQ(start["job_digest"], fmt::format("{:016x}", job::digest(run.job)));
  EXPECT_EQ(start["model"]["family"], "gpt2");
  EXPECT_EQ(start["model"]["layers"], 2);
  EXPECT_TRUE(start["model"]["preset"].is_null());
  EXPECT_EQ(start["parameters"], 131072);
  EXPECT_EQ(start["batch"],
            json::parse(R"({"global":8,"micro":2,"accumulation":2,"data_parallel":2,"ranks":2,"tensor":1,
                                            "pipeline":1,"sequence":128})"));
  EXPECT_EQ(start["steps"], 100);
  EXPECT_EQ(start["first_step"], 0);
  EXPECT_EQ(start["memory_planned"], 123'000'000);
  EXPECT_EQ(start["flops"]["model_per_token"], 1e6);
  EXPECT_EQ(start["flops"]["model_formula"], model_flops_formula);
  EXPECT_EQ(start["flops"]["hardware_per_step"], 700e6);
  EXPECT_EQ(start["flops"]["hardware_recompute_per_step"], 70e6);
  EXPECT_EQ(start["flops"]["hardware_formula"], hardware_flops_formula);
  EXPECT_EQ(start["flops"]["peak_tflops"], 2.0);
  EXPECT_EQ(start["flops"]["peak_name"], "made-up die, fp32 dense");
  EXPECT_EQ(start["job"]["run"]["steps"], 100);
}

TEST(Metrics, UnknownPeakIsNull) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  Metrics metrics;
  metrics.on_start(run.start);
  const json start = records_of(metrics_file(folder.path())).at(0);
  EXPECT_TRUE(start["flops"]["peak_tflops"].is_null());
  EXPECT_TRUE(start["flops"]["peak_name"].is_null());
}

TEST(Metrics, StepRecordHasEveryKeyAndExactNumbers) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  Metrics metrics;
  metrics.on_start(run.start);
  train::StepReport step = ExampleRun::step(7);
  step.loss = 3.1234567890123457;
  metrics.on_step(step);
  json record = records_of(metrics_file(folder.path())).at(1);
  EXPECT_GT(record["time"].get<double>(), 1.6e9);
  record.erase("time");
  EXPECT_EQ(record,
            json::parse(R"({"record":"step","step":7,"loss":3.1234567890123457,"grad_norm":2.0,"clip_factor":0.5,
    "skipped":false,"learning_rate":3e-4,"loss_scale":1.0,"tokens":1024,"total_tokens":7168,"tokens_per_s":2048.0,"seconds":0.5,
    "model_tflops":0.001024,"hardware_tflops":0.0014,"memory_planned":123000000,"memory_allocated":123000000,
    "memory_resident":140000000,"allocations":0,"library_allocations":7})"));
}

TEST(Metrics, WhatIsNotKnownIsNullAndNeverMissing) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  Metrics metrics;
  metrics.on_start(run.start);
  train::StepReport step = ExampleRun::step(1);
  metrics.on_step(step);
  step.allocations = step.library_allocations = step.resident_bytes = -1;
  metrics.on_step(step);
  const std::vector<json> records = records_of(metrics_file(folder.path()));
  for (const char* key : {"allocations", "library_allocations", "memory_resident"})
    EXPECT_TRUE(records[2][key].is_null()) << key;
  EXPECT_EQ(keys_of(records[1]), keys_of(records[2]));
}

TEST(Metrics, NumbersThatAreNotFiniteStayJson) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  Metrics metrics;
  metrics.on_start(run.start);
  const double infinity = std::numeric_limits<double>::infinity();
  train::StepReport step = ExampleRun::step(1);
  step.loss = std::nan(""), step.grad_norm = infinity, step.clip_factor = -infinity, step.skipped = true,
  step.seconds = 0;
  metrics.on_step(step);
  metrics.on_validation({.step = 1, .loss = std::nan(""), .tokens = 5, .seconds = 1});
  const std::vector<json> records = records_of(metrics_file(folder.path()));
  const json& record = records.at(1);
  EXPECT_TRUE(record["loss"].is_null());
  EXPECT_EQ(record["loss_text"], "nan");
  EXPECT_TRUE(record["grad_norm"].is_null());
  EXPECT_EQ(record["grad_norm_text"], "inf");
  EXPECT_EQ(record["clip_factor_text"], "-inf");
  EXPECT_EQ(record["tokens_per_s_text"], "inf");
  EXPECT_EQ(record["skipped"], true);
  EXPECT_FALSE(record.contains("learning_rate_text"));
  EXPECT_TRUE(records.at(2)["loss"].is_null());
  EXPECT_EQ(records.at(2)["loss_text"], "nan");
}

TEST(Metrics, ValidationSavedAndEndRecords) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  Metrics metrics;
  metrics.on_start(run.start);
  metrics.on_validation({.step = 3, .loss = 3.5, .tokens = 1000, .seconds = 0.25});
  metrics.on_saved(3, "run/check\"points\xff");
  metrics.on_end({.step = 3, .seconds = 12.5, .interrupted = true, .saved = "run/x"});
  metrics.on_end({.step = 3, .seconds = 12.5, .saved = {}});
  std::vector<json> records = records_of(metrics_file(folder.path()));
  ASSERT_EQ(records.size(), 5u);
  for (json& record : records) {
    EXPECT_TRUE(record["time"].is_number());
    record.erase("time");
  }
  EXPECT_EQ(records[1], json::parse(R"({"record":"validation","step":3,"loss":3.5,"tokens":1000,"seconds":0.25})"));
  EXPECT_EQ(records[2], json::parse(R"({"record":"saved","step":3,"folder":"run/check\"points\ufffd"})"));
  EXPECT_EQ(records[3], json::parse(R"({"record":"end","step":3,"seconds":12.5,"interrupted":true,"saved":"run/x"})"));
  EXPECT_TRUE(records[4]["saved"].is_null());
}

TEST(Metrics, EachRecordIsInTheFileAtOnce) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  Metrics metrics;
  metrics.on_start(run.start);
  for (int64_t i = 1; i <= 3; ++i) {
    metrics.on_step(ExampleRun::step(i));
    EXPECT_EQ(records_of(metrics_file(folder.path())).size(), static_cast<size_t>(i + 1));
  }
}

TEST(Metrics, ANewRunMovesTheOldFileAside) {
  TemporaryFolder folder;
  const fs::path file = metrics_file(folder.path());
  for (int64_t number = 1; number <= 3; ++number) {
    const ExampleRun run(folder.path(), 100 + number);
    Metrics metrics;
    metrics.on_start(run.start);
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("metrics.jsonl", "metrics.jsonl.1", "metrics.jsonl.2"));
  const auto steps = [](const fs::path& path) { return records_of(path).at(0)["steps"]; };
  EXPECT_EQ(steps(file.string() + ".1"), 101);
  EXPECT_EQ(steps(file.string() + ".2"), 102);
  EXPECT_EQ(steps(file), 103);
  EXPECT_EQ(records_of(file).size(), 1u);
}

TEST(Metrics, AResumedRunGoesOnInTheSameFile) {
  TemporaryFolder folder;
  const fs::path file = metrics_file(folder.path());
  {
    const ExampleRun run(folder.path());
    Metrics metrics;
    metrics.on_start(run.start);
    metrics.on_step(ExampleRun::step(1));
    metrics.on_step(ExampleRun::step(2));
  }
  write_file(file, read_file(file) + R"({"record":"step","st)");  // killed in the middle of a record
  const ExampleRun run(folder.path(), 100, 1);
  Metrics metrics;
  metrics.on_start(run.start);
  metrics.on_step(ExampleRun::step(2));
  const std::vector<json> records = records_of(file);
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[3]["record"], "start");
  EXPECT_EQ(records[3]["first_step"], 1);
  EXPECT_EQ(records[4]["step"], 2);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("metrics.jsonl"));
}

TEST(Metrics, FullDiskEndsTheRunAndNamesTheFile) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  TemporaryFolder folder;
  const fs::path file = metrics_file(folder.path());
  fs::create_symlink("/dev/full", file);
  const ExampleRun run(folder.path());
  Metrics metrics;
  EXPECT_THAT(message_of(Fault::run, [&] { metrics.on_start(run.start); }),
              AllOf(HasSubstr(file.string()), HasSubstr("No space left on device")));
}

TEST(Metrics, DiskThatFillsLaterKeepsWholeRecords) {
  TemporaryFolder folder;
  const fs::path file = metrics_file(folder.path());
  const ExampleRun run(folder.path());
  Metrics metrics;
  metrics.on_start(run.start);
  metrics.on_step(ExampleRun::step(1));
  {
    FileSizeLimit limit(static_cast<rlim_t>(fs::file_size(file)) + 100);
    EXPECT_THAT(message_of(Fault::run, [&] { metrics.on_step(ExampleRun::step(2)); }), HasSubstr(file.string()));
  }
  EXPECT_EQ(records_of(file).size(), 2u);
}

TEST(Metrics, MissingFolderIsNamed) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path() / "none");
  Metrics metrics;
  EXPECT_THAT(message_of(Fault::run, [&] { metrics.on_start(run.start); }),
              HasSubstr(metrics_file(folder.path() / "none").string()));
}

}  // namespace
}  // namespace strata::report
