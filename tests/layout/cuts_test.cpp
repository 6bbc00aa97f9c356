#include "layout/cuts.h"

#include <gtest/gtest.h>

namespace strata::layout {
namespace {

const Widths tree = {2, 4, 3};

TEST(Cuts, NestAndCoverEveryElementOnce) {
  const int64_t elements = 24 * 5;
  for (int reach = 0; reach <= 3; ++reach) {
    std::vector<int64_t> holders(static_cast<size_t>(elements), 0);
    for (int64_t rank = 0; rank < 24; ++rank) {
      const auto position = coordinates(tree, rank);
      const Cut shard = cut(elements, tree, position, reach);
      EXPECT_EQ(shard.elements, elements / shards(tree, reach));
      for (int64_t i = 0; i < shard.elements; ++i) ++holders[static_cast<size_t>(shard.begin + i)];
      if (reach > 0) {
        const Cut outer = cut(elements, tree, position, reach - 1);
        EXPECT_GE(shard.begin, outer.begin);
        EXPECT_LE(shard.begin + shard.elements, outer.begin + outer.elements);
      }
    }
    for (int64_t holder : holders) EXPECT_EQ(holder, 24 / shards(tree, reach));
  }
}

TEST(Cuts, TheInnermostLevelTakesTheMostSignificantCut) {
  // Frontier's dies 0 and 1 of one package hold the two halves, whatever node they are on.
  const auto position = coordinates(tree, 1 + 2 * 3 + 8 * 2);
  EXPECT_EQ(position, (std::vector<int64_t>{1, 3, 2}));
  EXPECT_EQ(cut(48, tree, position, 1), (Cut{24, 24}));
  EXPECT_EQ(cut(48, tree, position, 2), (Cut{42, 6}));
  EXPECT_EQ(cut(48, tree, position, 3), (Cut{46, 2}));
}

TEST(Cuts, RefusesARankBeyondTheTree) { EXPECT_THROW(coordinates(tree, 24), std::logic_error); }

}  // namespace
}  // namespace strata::layout
