#include "layout/mesh.h"

#include <algorithm>

#include "core/error.h"

namespace strata::layout {

Mesh::Mesh(Widths levels) {
  widths_.fill(Widths(levels.size(), 1));
  widths_[static_cast<size_t>(Axis::data)] = std::move(levels);
}

std::optional<Mesh> Mesh::lay(const Widths& levels, const std::array<int64_t, axes>& degrees,
                              const std::array<Axis, axes>& order) {
  Mesh mesh;
  mesh.widths_.fill(Widths(levels.size(), 1));
  mesh.order_ = order;
  Widths left = levels;
  size_t level = 0;
  for (const Axis axis : order) {
    int64_t wanted = degrees[static_cast<size_t>(axis)];
    while (wanted > 1) {
      while (level < left.size() && left[level] == 1) ++level;
      if (level == left.size()) return {};
      const int64_t taken = std::min(wanted, left[level]);
      if (wanted % taken != 0 || left[level] % taken != 0) return {};
      mesh.widths_[static_cast<size_t>(axis)][level] = taken;
      wanted /= taken;
      left[level] /= taken;
    }
  }
  if (std::any_of(left.begin(), left.end(), [](int64_t width) { return width != 1; })) return {};
  return mesh;
}

int64_t Mesh::ranks() const {
  int64_t product = 1;
  for (int axis = 0; axis < axes; ++axis) product *= degree(static_cast<Axis>(axis));
  return product;
}

int64_t Mesh::degree(Axis axis) const { return shards(widths(axis), levels()); }

int64_t Mesh::stride(Axis axis, int level) const {
  int64_t product = 1;
  for (int below = 0; below < level; ++below)
    for (const Widths& each : widths_) product *= each[static_cast<size_t>(below)];
  for (const Axis inner : order_) {
    if (inner == axis) break;
    product *= widths(inner)[static_cast<size_t>(level)];
  }
  return product;
}

std::vector<int64_t> Mesh::coordinates(int64_t rank, Axis axis) const {
  STRATA_CHECK(rank >= 0 && rank < ranks());
  std::vector<int64_t> result;
  for (int level = 0; level < levels(); ++level)
    result.push_back(rank / stride(axis, level) % widths(axis)[static_cast<size_t>(level)]);
  return result;
}

int64_t Mesh::index(int64_t rank, Axis axis) const {
  const std::vector<int64_t> position = coordinates(rank, axis);
  int64_t result = 0;
  for (int level = levels(); level-- > 0;)
    result = result * widths(axis)[static_cast<size_t>(level)] + position[static_cast<size_t>(level)];
  return result;
}

int64_t Mesh::with_index(int64_t rank, Axis axis, int64_t index) const {
  const std::vector<int64_t> from = coordinates(rank, axis), to = layout::coordinates(widths(axis), index);
  for (int level = 0; level < levels(); ++level)
    rank += (to[static_cast<size_t>(level)] - from[static_cast<size_t>(level)]) * stride(axis, level);
  return rank;
}

std::vector<int64_t> Mesh::group(int64_t rank, Axis axis, int first, int last) const {
  const std::vector<int64_t> position = coordinates(rank, axis);
  std::vector<int64_t> result = {rank};
  for (int level = first; level < last; ++level) {
    const auto l = static_cast<size_t>(level);
    std::vector<int64_t> next;
    for (const int64_t at : result)
      for (int64_t i = 0; i < widths(axis)[l]; ++i) next.push_back(at + (i - position[l]) * stride(axis, level));
    result = std::move(next);
  }
  return result;
}

int Mesh::crossed(int64_t a, int64_t b) const {
  for (int level = levels(); level-- > 0;)
    for (int axis = 0; axis < axes; ++axis)
      if (coordinates(a, static_cast<Axis>(axis))[static_cast<size_t>(level)] !=
          coordinates(b, static_cast<Axis>(axis))[static_cast<size_t>(level)])
        return level;
  return -1;
}

}  // namespace strata::layout
