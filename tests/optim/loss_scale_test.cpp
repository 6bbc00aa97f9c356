// The dynamic loss scale, against the rule worked out by hand.

#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::optim {
namespace {

/// Scales before each of the steps in `story` ('.': good, 'X': overflow) and after the last.
std::vector<double> scales(const LossScaling& rule, const std::string& story) {
  LossScale scale(rule);
  std::vector<double> result{scale.scale()};
  for (char step : story) {
    EXPECT_TRUE(scale.update(step == 'X'));
    result.push_back(scale.scale());
  }
  return result;
}

TEST(LossScale, IsOneWhereNoneIsNeeded) {
  LossScale none;
  EXPECT_EQ(none.scale(), 1);
  EXPECT_TRUE(none.update(false));
  EXPECT_EQ(none.scale(), 1);
}

TEST(LossScale, StartsAtAPowerOfTwo) {
  EXPECT_EQ(LossScale(LossScaling{}).scale(), 65536);
  EXPECT_EQ(LossScale(LossScaling{.initial_power = 12}).scale(), 4096);
}

TEST(LossScale, DoublesAfterAWindow) {
  // Good steps are counted from 0: the fourth is the first with three good ones before it.
  const LossScaling rule{.initial_power = 3, .window = 3};
  EXPECT_EQ(scales(rule, "........"), (std::vector<double>{8, 8, 8, 8, 16, 16, 16, 32, 32}));
}

TEST(LossScale, HalvesWhenTheHysteresisIsUsedUp) {
  const LossScaling rule{.initial_power = 5, .window = 100, .hysteresis = 2};
  EXPECT_EQ(scales(rule, "XXX"), (std::vector<double>{32, 32, 16, 8}));
  // Good steps between do not restore it...
  EXPECT_EQ(scales(rule, "X..X.X"), (std::vector<double>{32, 32, 32, 32, 16, 16, 8}));
  // ...unless asked to.
  const LossScaling restoring{.initial_power = 5, .window = 100, .hysteresis = 2, .consecutive = true};
  EXPECT_EQ(scales(restoring, "X..X.XX"), (std::vector<double>{32, 32, 32, 32, 32, 32, 32, 16}));
  EXPECT_EQ(scales({.initial_power = 5, .hysteresis = 1}, "XX"), (std::vector<double>{32, 16, 8}));
}

TEST(LossScale, ADoublingRestoresTheHysteresis) {
  const LossScaling rule{.initial_power = 3, .window = 2, .hysteresis = 2};
  EXPECT_EQ(scales(rule, "X...XX"), (std::vector<double>{8, 8, 8, 8, 16, 16, 8}));
}

TEST(LossScale, AnOverflowStartsTheWindowAgain) {
  const LossScaling rule{.initial_power = 3, .window = 2, .hysteresis = 9};
  EXPECT_EQ(scales(rule, "..X...."), (std::vector<double>{8, 8, 8, 8, 8, 8, 16, 16}));
}

TEST(LossScale, EndsTheRunAtTheMinimum) {
  LossScale scale({.initial_power = 1, .hysteresis = 1, .minimum = 1});
  EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.update(true));
  // A minimum that is no power of two is reached, not passed.
  LossScale odd({.initial_power = 2, .hysteresis = 1, .minimum = 3});
  EXPECT_TRUE(odd.update(true));
  EXPECT_EQ(odd.scale(), 3);
  EXPECT_FALSE(odd.update(true));
}

TEST(LossScale, AFixedScaleStays) {
  LossScale scale({.fixed = 128, .window = 1});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.scale(), 128);
  EXPECT_FALSE(scale.update(true));
}

}  // namespace
}  // namespace strata::optim
