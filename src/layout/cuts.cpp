#include "layout/cuts.h"

#include "core/error.h"
#include "ops/op.h"

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

Cut part(const Cut& whole, int64_t parts, int64_t index) {
  STRATA_CHECK(parts > 0 && index >= 0 && index < parts);
  const int64_t grains = whole.elements / ops::grain;
  const auto begin = [&](int64_t i) { return i == parts ? whole.elements : i * grains / parts * ops::grain; };
  return {whole.begin + begin(index), begin(index + 1) - begin(index)};
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

std::vector<int64_t> group(std::span<const int64_t> widths, int64_t rank, int first, int last) {
  const std::vector<int64_t> position = coordinates(widths, rank);
  int64_t base = rank;
  for (int level = first; level < last; ++level) base -= position[static_cast<size_t>(level)] * shards(widths, level);
  std::vector<int64_t> ranks = {base};
  for (int level = first; level < last; ++level) {
    std::vector<int64_t> next;
    for (int64_t at : ranks)
      for (int64_t i = 0; i < widths[static_cast<size_t>(level)]; ++i) next.push_back(at + i * shards(widths, level));
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace strata::layout
