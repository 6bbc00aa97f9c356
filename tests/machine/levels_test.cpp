#include "machine/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace strata::machine {
namespace {

using testing::HasSubstr;

const std::vector<Level> frontier = {{"package", 2}, {"node", 4}, {"system", 0}};

TEST(Levels, TheOutermostTakesWhatTheRanksLeave) {
  EXPECT_EQ(fill_levels(frontier, 64, "x").back().width, 8);
  EXPECT_EQ(fill_levels(frontier, 8, "x").back().width, 1);
  EXPECT_EQ(fill_levels(std::vector<Level>{{"all", 0}}, 7, "x").back().width, 7);
}

TEST(Levels, RanksThatDoNotFillAreRefusedWithTheArithmetic) {
  try {
    fill_levels(frontier, 12, "job.toml:3: mesh.levels");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_THAT(error.what(),
                HasSubstr("job.toml:3: mesh.levels: 12 ranks are not a multiple of 2 package x 4 node = 8; "
                          "use 8 or 16 ranks"));
  }
  try {
    fill_levels(frontier, 3, "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("use 8 ranks"));
  }
  const std::vector<Level> fixed = {{"package", 2}, {"node", 4}, {"system", 2}};
  EXPECT_EQ(fill_levels(fixed, 16, "x"), fixed);
  try {
    fill_levels(fixed, 8, "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 package x 4 node x 2 system = 16 ranks, but there are 8"));
  }
}

TEST(Levels, WidthsPastAnyMachineDoNotOverflow) {
  const int64_t wide = int64_t{1} << 31;
  const std::vector<Level> levels = {{"a", wide}, {"b", wide}, {"c", wide}, {"d", 0}};
  EXPECT_THROW(fill_levels(levels, 4, "x"), Error);
}

TEST(Levels, OneHostHoldsAllRanks) { EXPECT_EQ(fill_levels(one_host(6), 6, "x"), one_host(6)); }

}  // namespace
}  // namespace strata::machine
