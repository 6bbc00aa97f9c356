// strata bench: what it checks and the keys it prints. Speeds are for people, never for tests.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/run.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;

TEST(Bench, AStepInEveryTypePrintsItsKeysAndPlansItsMemory) {
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    const Outcome outcome = run_program(STRATA_PROGRAM, {"bench", "step", "--model", "quickstart", "--batch", "2",
                                                         "--seq", "9", "--steps", "2", "--dtype", dtype, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json result = Json::parse(outcome.out);
    for (const char* key : {"tokens_per_s", "ms_per_step", "gemm_ms", "gemm_gflops", "gemm_fraction"})
      EXPECT_GT(result.at(key).get<double>(), 0) << key;
    EXPECT_EQ(result.at("peak_bytes_planned"), result.at("peak_bytes_measured"));
    EXPECT_TRUE(result.at("repeatable").get<bool>());
    EXPECT_EQ(result.at("dtype"), dtype);
  }
}

TEST(Bench, KernelsAreHeldAgainstTheStreamRate) {
  const Outcome outcome =
      run_program(STRATA_PROGRAM, {"bench", "kernels", "--only", "rms_norm", "--rounds", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json kernels = Json::parse(outcome.out).at("kernels");
  EXPECT_FALSE(kernels.empty());
  for (const Json& kernel : kernels) {
    EXPECT_NE(kernel.at("kernel").get<std::string>().find("rms_norm"), std::string::npos);
    EXPECT_GT(kernel.at("ratio").get<double>(), 0);
    EXPECT_GT(kernel.at("cached_gb_per_s").get<double>(), 0);
    const auto bound = kernel.at("bound").get<std::string>();
    EXPECT_TRUE(bound == "memory" || bound == "arithmetic") << bound;
  }
  EXPECT_EQ(run_program(STRATA_PROGRAM, {"bench", "kernels", "--dtype", "fp8"}).code, 2);
}

TEST(Bench, WiresAreHeldAgainstMemcpy) {
  const Outcome outcome =
      run_program(STRATA_PROGRAM, {"bench", "wires", "--only", "decode", "--rounds", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json wires = Json::parse(outcome.out).at("wires");
  EXPECT_EQ(wires.size(), 10u);  // two sizes of bf16, int8 and int4 from fp32, int8 and int4 from bf16
  for (const Json& wire : wires) {
    EXPECT_EQ(wire.at("operation"), "decode");
    EXPECT_GT(wire.at("ratio").get<double>(), 0);
  }
  EXPECT_EQ(run_program(STRATA_PROGRAM, {"bench", "wires", "--rounds", "0"}).code, 2);
}

TEST(Bench, PlacementsArePricedWithoutRunningThem) {
  const std::string job = STRATA_SOURCE_DIR "/bench/cluster/compare.toml";
  const std::vector<std::string> verb = {"bench", "placements", job, "--set", "run.machine=frontier"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), verb.begin(), verb.end());
    return run_program(STRATA_PROGRAM, more);
  };
  const Outcome outcome = run({"--ranks", "16", "--micro-batches", "1,3", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json result = Json::parse(outcome.out);
  EXPECT_EQ(result.at("ranks"), 16);
  EXPECT_EQ(result.at("levels").size(), 3u);
  ASSERT_EQ(result.at("cases").size(), 7u * 2 * 2);
  for (const Json& each : result.at("cases")) {
    const Json& allowed = each.at("allowed");
    double sum = allowed.at("compute_s").get<double>() + allowed.at("idle_s").get<double>();
    for (const auto& [purpose, seconds] : allowed.at("exposed_s").items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, allowed.at("step_s").get<double>(), 1e-9 + 1e-6 * sum);
    EXPECT_FALSE(each.contains("measured"));
    EXPECT_GT(each.at("memory_bytes").get<int64_t>(), 0);
  }
  // zeropp and zero-topo over zero3, and zero-topo over zeropp.
  EXPECT_EQ(result.at("ratios").size(), 3u * 2 * 2);

  for (const auto& [more, said] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{"--ranks", "12"}, "run.machine = frontier"},
                                                                     {{"--placements", "zero4"}, "zero4"},
                                                                     {{"--micro-batches", "0"}, "--micro-batches"},
                                                                     {{"--ranks", "8", "--pace", "rack"}, "rack"}}) {
    const Outcome bad = run(more);
    EXPECT_EQ(bad.code, 2) << said;
    EXPECT_NE(bad.err.find(said), std::string::npos) << bad.err;
  }
  const Outcome without = run_program(STRATA_PROGRAM, {"bench", "placements", job});
  EXPECT_EQ(without.code, 2);
  EXPECT_NE(without.err.find("run.machine"), std::string::npos);
}

}  // namespace
}  // namespace strata::cli
