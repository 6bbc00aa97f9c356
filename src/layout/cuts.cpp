#include "layout/cuts.h"

#include "core/error.h"

namespace strata::layout {

int64_t shards(std::span<const int64_t> widths, int reach) {
  int64_t product = 1;
  for (int level = 0; level < reach; ++level) product *= widths[static_cast<size_t>(level)];
  return product;
}

std::vector<int64_t> coordinates(std::span<const int64_t> widths, int64_t rank) {
  std::vector<int64_t> result;
  for (int64_t width : widths) {
    result.push_back(rank % width);
    rank /= width;
  }
  STRATA_CHECK(rank == 0, "a rank beyond the product of the widths");
  return result;
}

Cut cut(int64_t elements, std::span<const int64_t> widths, std::span<const int64_t> position, int reach) {
  Cut result{0, elements};
  for (int level = 0; level < reach; ++level) {
    const int64_t width = widths[static_cast<size_t>(level)];
    STRATA_CHECK(result.elements % width == 0, "{} elements over {} ranks", result.elements, width);
    result.elements /= width;
    result.begin += position[static_cast<size_t>(level)] * result.elements;
  }
  return result;
}

}  // namespace strata::layout
