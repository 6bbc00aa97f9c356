#include "step/place.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/types.h"
#include "device/device.h"

namespace strata::step {

int64_t place(std::span<Interval> intervals) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (intervals[a].bytes != intervals[b].bytes) return intervals[a].bytes > intervals[b].bytes;
    return intervals[a].begin < intervals[b].begin;
  });
  std::vector<size_t> placed;  // by offset
  int64_t extent = 0;
  for (size_t index : order) {
    Interval& interval = intervals[index];
    const int64_t bytes = round_up(interval.bytes, device::alignment);
    int64_t offset = 0;
    for (size_t other : placed) {
      const Interval& o = intervals[other];
      if (o.end < interval.begin || interval.end < o.begin) continue;
      if (offset + bytes <= o.offset) break;  // placed ones are sorted: the gap before this one holds it
      offset = std::max(offset, o.offset + round_up(o.bytes, device::alignment));
    }
    interval.offset = offset;
    extent = std::max(extent, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](int64_t value, size_t other) { return value < intervals[other].offset; }),
                  index);
  }
  return extent;
}

int64_t most_alive(std::span<const Interval> intervals) {
  std::map<int64_t, int64_t> change;
  for (const Interval& interval : intervals) {
    change[interval.begin] += round_up(interval.bytes, device::alignment);
    change[interval.end + 1] -= round_up(interval.bytes, device::alignment);
  }
  int64_t alive = 0, most = 0;
  for (const auto& [position, bytes] : change) most = std::max(most, alive += bytes);
  return most;
}

}  // namespace strata::step
