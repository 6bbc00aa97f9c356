#include "core/text.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Human, BytesCountsAndDurations) {
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1230000000), "1.23 GB");
  EXPECT_EQ(human_bytes(999999), "1.00 MB");
  EXPECT_EQ(human_count(124439808), "124.4M");
  EXPECT_EQ(human_count(987), "987");
  EXPECT_EQ(human_duration(0.84), "840 ms");
  EXPECT_EQ(human_duration(185), "3 min 05 s");
  EXPECT_EQ(human_duration(59.97), "1 min 00 s");
}

TEST(Nearest, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> keys = {"micro", "global", "accumulation"};
  EXPECT_EQ(nearest("mciro", keys), "micro");
  EXPECT_EQ(nearest("globl", keys), "global");
  EXPECT_EQ(nearest("zzzzzzzz", keys), "");
  EXPECT_EQ(did_you_mean("globl", keys), " (did you mean \"global\"?)");
}

}  // namespace
}  // namespace strata
