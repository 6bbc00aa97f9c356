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

/// What part number `index` of `parts` holds of a cut that members share out: whole grains, as evenly as they go; what is
/// beyond the last whole grain goes to the last.
Cut part(const Cut& whole, int64_t parts, int64_t index);

/// The shard of a vector of `elements` (a multiple of shards(widths, reach)) that the rank at `position` holds.
Cut cut(int64_t elements, std::span<const int64_t> widths, std::span<const int64_t> position, int reach);

/// Ranks that share all of `rank`'s coordinates but those of levels [first, last), in the order in which their parts lie in
/// a vector: the innermost level's coordinate counts most.
std::vector<int64_t> group(std::span<const int64_t> widths, int64_t rank, int first, int last);

}  // namespace strata::layout
