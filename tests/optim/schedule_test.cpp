#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace strata::optim {
namespace {

std::vector<double> rates(const Schedule& schedule, double lr, int64_t steps) {
  std::vector<double> result;
  for (int64_t step = 0; step <= steps; ++step) result.push_back(learning_rate(schedule, lr, step, steps));
  return result;
}

constexpr Shape shapes[] = {Shape::constant, Shape::cosine, Shape::linear, Shape::wsd};

TEST(Schedule, LengthsAreSharesBelowOneAndStepsFromOne) {
  EXPECT_EQ(steps_of(0, 1000), 0);
  EXPECT_EQ(steps_of(0.01, 1000), 10);
  EXPECT_EQ(steps_of(0.01, 150), 2);  // 1.5, to the nearest
  EXPECT_EQ(steps_of(0.999, 10), 10);
  EXPECT_EQ(steps_of(1, 1000), 1);
  EXPECT_EQ(steps_of(250, 1000), 250);
}

TEST(Schedule, WarmUpRisesInEqualPartsAndNeverWastesAStep) {
  for (Shape shape : shapes) {
    const auto r = rates({.shape = shape, .warmup = 4, .min_lr = 0, .decay = 3}, 1.0, 20);
    EXPECT_DOUBLE_EQ(r[0], 0.2) << name_of(shape);
    EXPECT_DOUBLE_EQ(r[1], 0.4) << name_of(shape);
    EXPECT_DOUBLE_EQ(r[3], 0.8) << name_of(shape);
    EXPECT_EQ(r[4], 1.0) << name_of(shape);  // exactly the full rate, at step w and not before
    for (int i = 0; i < 20; ++i) EXPECT_GT(r[static_cast<size_t>(i)], 0) << name_of(shape) << " at " << i;
  }
}

TEST(Schedule, ShareAndStepsOfTheSameLengthAgree) {
  EXPECT_EQ(rates({.shape = Shape::cosine, .warmup = 0.1}, 3e-4, 50),
            rates({.shape = Shape::cosine, .warmup = 5}, 3e-4, 50));
  EXPECT_EQ(rates({.shape = Shape::wsd, .decay = 0.2}, 3e-4, 50), rates({.shape = Shape::wsd, .decay = 10}, 3e-4, 50));
}

TEST(Schedule, ConstantStays) {
  for (double rate : rates({}, 0.125, 10)) EXPECT_EQ(rate, 0.125);
}

TEST(Schedule, CosineStartsFullHalvesInTheMiddleAndEndsAtTheFloor) {
  const auto r = rates({.shape = Shape::cosine, .warmup = 10, .min_lr = 0.1}, 1.0, 110);
  EXPECT_EQ(r[10], 1.0);
  EXPECT_DOUBLE_EQ(r[60], 0.55);
  EXPECT_NEAR(r[35], 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_EQ(r[110], 0.1);
  EXPECT_GT(r[109], 0.1);
  for (size_t i = 10; i < 110; ++i) EXPECT_GT(r[i], r[i + 1]) << i;
}

TEST(Schedule, LinearFallsInEqualSteps) {
  const auto r = rates({.shape = Shape::linear, .min_lr = 0.2}, 1.0, 8);
  for (size_t i = 0; i <= 8; ++i) EXPECT_DOUBLE_EQ(r[i], 1.0 - 0.1 * static_cast<double>(i));
  EXPECT_EQ(r[8], 0.2);
}

TEST(Schedule, WsdHoldsThenFalls) {
  const auto r = rates({.shape = Shape::wsd, .warmup = 2, .min_lr = 0.5, .decay = 4}, 1.0, 12);
  for (size_t i = 2; i <= 8; ++i) EXPECT_EQ(r[i], 1.0) << i;
  EXPECT_DOUBLE_EQ(r[9], 0.875);
  EXPECT_DOUBLE_EQ(r[10], 0.75);
  EXPECT_DOUBLE_EQ(r[11], 0.625);
  EXPECT_EQ(r[12], 0.5);
}

TEST(Schedule, PastTheEndStaysAtTheFloor) {
  for (Shape shape : {Shape::cosine, Shape::linear, Shape::wsd})
    EXPECT_EQ(learning_rate({.shape = shape, .min_lr = 0.3}, 1.0, 1000, 10), 0.3);
  EXPECT_EQ(learning_rate({}, 1.0, 1000, 10), 1.0);
}

TEST(Schedule, ExtremeLengths) {
  for (Shape shape : shapes) {
    EXPECT_EQ(learning_rate({.shape = shape}, 1.0, 0, 1), 1.0) << name_of(shape);             // a single step
    EXPECT_DOUBLE_EQ(learning_rate({.shape = shape, .warmup = 10}, 1.0, 9, 10), 10.0 / 11.0)  // all of it warm-up
        << name_of(shape);
    EXPECT_TRUE(std::isfinite(learning_rate({.shape = shape}, 1.0, 0, 0))) << name_of(shape);
  }
  // A decay as long as what the warm-up leaves, and no decay at all.
  EXPECT_EQ(learning_rate({.shape = Shape::wsd, .warmup = 5, .decay = 5}, 1.0, 5, 10), 1.0);
  EXPECT_LT(learning_rate({.shape = Shape::wsd, .warmup = 5, .decay = 5}, 1.0, 6, 10), 1.0);
  EXPECT_EQ(learning_rate({.shape = Shape::wsd, .decay = 0}, 1.0, 9, 10), 1.0);
}

TEST(Schedule, IsAPureFunctionOfTheStep) {
  const Schedule schedule{.shape = Shape::cosine, .warmup = 0.05, .min_lr = 1e-5};
  const double once = learning_rate(schedule, 1e-3, 777, 1000);
  for (int64_t step : {0, 999, 5}) learning_rate(schedule, 1e-3, step, 1000);
  EXPECT_EQ(learning_rate(schedule, 1e-3, 777, 1000), once);
}

}  // namespace
}  // namespace strata::optim
