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

}  // namespace
}  // namespace strata::cli
