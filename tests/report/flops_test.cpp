#include "report/flops.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "model/forward.h"
#include "report/example_run.h"

namespace strata::report {
namespace {

TEST(Flops, RatesAreARankEachButTokensAreOfAll) {
  const ExampleRun run("unused");
  const Rates speed = rates(run.start, ExampleRun::step(1));
  EXPECT_DOUBLE_EQ(speed.tokens, 2048);
  EXPECT_DOUBLE_EQ(speed.model_flops, 1024e6);
  EXPECT_DOUBLE_EQ(speed.hardware_flops, 1400e6);
}

TEST(Flops, AStepWithoutDurationHasNoFiniteRate) {
  const ExampleRun run("unused");
  train::StepReport step = ExampleRun::step(1);
  step.seconds = 0;
  EXPECT_TRUE(std::isinf(rates(run.start, step).tokens));
}

TEST(Flops, TheModelFormulaIsTheOneThatIsComputed) {
  const ExampleRun run("unused");
  const model::Config& model = run.job.model;
  double weights = 500 * 64;
  weights += 2 * (3 * 64 * 64 + 64 * 64 + 2 * 64 * 256);
  EXPECT_DOUBLE_EQ(model::train_flops_per_token(model, 128), 6 * weights + 12 * 2 * 4 * 16 * 128);
  EXPECT_THAT(std::string(model_flops_formula),
              testing::HasSubstr("6 x weights in matrix products + 12 x layers x heads x head_dim x sequence"));
}

TEST(Flops, CountsReadWell) {
  EXPECT_EQ(flops_text(1.234e12), "1.23 TFLOP");
  EXPECT_EQ(flops_text(45.67e9), "45.7 GFLOP");
  EXPECT_EQ(flops_text(999.6e9), "1.00 TFLOP");
  EXPECT_EQ(flops_text(0), "0.00 MFLOP");
  EXPECT_EQ(flops_text(2e21), "2000 EFLOP");
  EXPECT_EQ(flops_text(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(flops_text(std::nan("")), "?");
}

}  // namespace
}  // namespace strata::report
