#pragma once
// Offsets for byte ranges that live over intervals of an order: the one placement algorithm, used inside blocks (scratch)
// and over the whole step (the arena).

#include <cstdint>
#include <span>
#include <vector>

namespace strata::step {

/// Lives from `begin` to `end`, both included, in positions of some order.
struct Interval {
  int64_t begin, end;
  int64_t bytes;
  int64_t offset = -1;  ///< set by place
};

/// Gives each interval an offset, a multiple of device::alignment, so that no two alive at once overlap; largest first, each
/// into the lowest gap that holds it. Returns the extent. A pure function of its input.
int64_t place(std::span<Interval> intervals);

/// The least any placement could need: most bytes alive at one position, each rounded up to the alignment.
int64_t most_alive(std::span<const Interval> intervals);

}  // namespace strata::step
