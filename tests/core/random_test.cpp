#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace strata {
namespace {

// Known answers of Random123's kat_vectors for philox4x32 with 10 rounds.
TEST(Philox, MatchesKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Random4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Random4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull),
            (Random4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// And with 7.
TEST(Philox, MatchesKnownAnswersOfFewerRounds) {
  EXPECT_EQ(philox<7>(0, 0, 0), (Random4{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox<7>(~0ull, ~0ull, ~0ull), (Random4{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox<7>(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull),
            (Random4{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Normal, HasUnitVarianceAndNoDependenceOnCallOrder) {
  const uint64_t key = random_key(7, "layers.0.mlp.up.weight");
  double sum = 0, squares = 0;
  constexpr int count = 200000;
  for (int i = 0; i < count; ++i) {
    const double x = normal(key, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.01);
  EXPECT_EQ(normal(key, 12345), normal(key, 12345));
  EXPECT_NE(normal(random_key(7, "a"), 0), normal(random_key(7, "b"), 0));
  EXPECT_NE(normal(random_key(7, "a"), 0), normal(random_key(8, "a"), 0));
}

TEST(Permutation, IsABijectionAtEverySize) {
  for (int64_t size : {1, 2, 3, 5, 16, 17, 1000, 4097}) {
    const Permutation permutation(42, size);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t image = permutation(i);
      EXPECT_GE(image, 0);
      EXPECT_LT(image, size);
      seen.insert(image);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), size);
  }
}

}  // namespace
}  // namespace strata
