#pragma once
// How a flat vector is cut over the levels of the machine. Cuts nest: the innermost level takes the most significant cut, so
// a rank's shard over more levels lies inside its shard over fewer, and gathers land in place.

#include <cstdint>
#include <span>
#include <vector>

namespace strata::layout {

/// Data-parallel ranks of each level, innermost first; their product is the data-parallel degree.
using Widths = std::vector<int64_t>;

/// Product of the first `reach` widths: into how many shards a state that reaches over so many levels is cut.
int64_t shards(std::span<const int64_t> widths, int reach);

/// Position of a data-parallel rank within each level, innermost first.
std::vector<int64_t> coordinates(std::span<const int64_t> widths, int64_t rank);

struct Cut {
  int64_t begin = 0, elements = 0;
  bool operator==(const Cut&) const = default;
};

/// The shard of a vector of `elements` (a multiple of shards(widths, reach)) that the rank at `position` holds.
Cut cut(int64_t elements, std::span<const int64_t> widths, std::span<const int64_t> position, int reach);

}  // namespace strata::layout
