#include "execute/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace strata::execute {
namespace {

const std::vector<float> logits = {0.0f, 1.0f, 2.0f, -1.0f, 1.5f};

std::vector<double> frequencies(const Sampling& sampling) {
  std::vector<double> counts(logits.size(), 0);
  constexpr int draws = 40000;
  for (int i = 0; i < draws; ++i) {
    const double random = static_cast<double>(uniform(philox(1, static_cast<uint64_t>(i))[0]));
    counts[static_cast<size_t>(sample(logits, sampling, random))] += 1.0 / draws;
  }
  return counts;
}

TEST(Sample, FollowsTheSoftmax) {
  const auto f = frequencies({.temperature = 0.7});
  double sum = 0;
  for (float l : logits) sum += std::exp(static_cast<double>(l) / 0.7);
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(f[i], std::exp(static_cast<double>(logits[i]) / 0.7) / sum, 0.01);
}

TEST(Sample, TemperatureZeroAndTopOneAreTheLikeliest) {
  for (double random : {0.0, 0.5, 0.999}) {
    EXPECT_EQ(sample(logits, {.temperature = 0}, random), 2);
    EXPECT_EQ(sample(logits, {.top_k = 1}, random), 2);
    EXPECT_EQ(sample(logits, {.top_p = 0.01}, random), 2);
  }
  const std::vector<float> tie = {3.0f, 3.0f};
  EXPECT_EQ(sample(tie, {.temperature = 0}, 0.9), 0);
}

TEST(Sample, TopKAndTopPKeepOnlyTheLikeliest) {
  const auto k = frequencies({.top_k = 2});
  EXPECT_GT(k[2], 0);
  EXPECT_GT(k[4], 0);
  EXPECT_EQ(k[0] + k[1] + k[3], 0);
  // Probabilities, sorted: 0.46, 0.28, 0.17, 0.06, 0.02. The first two reach 0.7.
  const auto p = frequencies({.top_p = 0.7});
  EXPECT_EQ(p[0] + p[1] + p[3], 0);
  EXPECT_NEAR(p[2] + p[4], 1, 1e-9);
}

TEST(Sample, StaysInsideForEveryRandomNumberAndWidthOfTopK) {
  for (double random : {0.0, 0.25, 1 - 1e-16})
    for (int64_t k : {0, 1, 3, 5, 99}) {
      const int32_t id = sample(logits, {.temperature = 1.3, .top_k = k, .top_p = 0.95}, random);
      EXPECT_GE(id, 0);
      EXPECT_LT(id, 5);
    }
}

TEST(Sample, RefusesBrokenLogits) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> broken = logits;
    broken[3] = bad;
    EXPECT_THROW(sample(broken, {}, 0.5), Error);
  }
}

}  // namespace
}  // namespace strata::execute
