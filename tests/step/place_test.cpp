#include "step/place.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "core/types.h"
#include "device/device.h"

namespace strata::step {
namespace {

void expect_sound(const std::vector<Interval>& intervals, int64_t extent) {
  for (size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_EQ(intervals[i].offset % device::alignment, 0);
    EXPECT_LE(intervals[i].offset + intervals[i].bytes, extent);
    for (size_t j = 0; j < i; ++j) {
      const Interval &a = intervals[i], &b = intervals[j];
      const bool alive_at_once = a.begin <= b.end && b.begin <= a.end;
      const bool share_bytes = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      EXPECT_FALSE(alive_at_once && share_bytes) << i << " and " << j;
    }
  }
}

TEST(Place, NeverOverlapsAndStaysNearTheLeastPossible) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<Interval> intervals;
    for (uint64_t i = 0; i < 60; ++i) {
      const Random4 r = philox(seed, i);
      const int64_t begin = r[0] % 40;
      intervals.push_back({begin, begin + r[1] % 12, r[2] % 5000});
    }
    const int64_t extent = place(intervals);
    expect_sound(intervals, extent);
    EXPECT_GE(extent, most_alive(intervals));
    EXPECT_LE(extent, most_alive(intervals) * 3 / 2);
  }
}

TEST(Place, ReusesBytesOnceTheirOwnerIsDone) {
  std::vector<Interval> intervals = {{0, 1, 1000}, {2, 3, 1000}, {4, 4, 500}};
  EXPECT_EQ(place(intervals), round_up(1000, device::alignment));
}

TEST(Place, NothingNeedsNothing) {
  std::vector<Interval> none;
  EXPECT_EQ(place(none), 0);
}

}  // namespace
}  // namespace strata::step
