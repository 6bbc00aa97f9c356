#pragma once
// How tensor-, data- and pipeline-parallel ranks are laid onto a machine's levels. Within a level, and from level to level, the
// first axis of the order has neighbours for peers, the last one those furthest away.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "layout/cuts.h"

namespace strata::layout {

enum class Axis : uint8_t { tensor, data, pipeline };
inline constexpr int axes = 3;

class Mesh {
 public:
  /// One rank.
  Mesh() = default;
  /// Every rank data-parallel.
  explicit Mesh(Widths levels);

  /// Fills levels of so many ranks each, innermost first, with axes of so many ranks each (by Axis), the order's first axis
  /// first: an axis takes whole levels, and of the last one a part that divides it. Nothing if some axis does not fit so.
  static std::optional<Mesh> lay(const Widths& levels, const std::array<int64_t, axes>& degrees,
                                 const std::array<Axis, axes>& order);

  int levels() const { return static_cast<int>(widths_[0].size()); }
  int64_t ranks() const;
  int64_t degree(Axis axis) const;
  /// An axis's part of each level, innermost first.
  const Widths& widths(Axis axis) const { return widths_[static_cast<size_t>(axis)]; }

  /// A rank's place along an axis, by level.
  std::vector<int64_t> coordinates(int64_t rank, Axis axis) const;
  /// The same as one number from 0 to degree - 1, the innermost level's coordinate counting least.
  int64_t index(int64_t rank, Axis axis) const;
  /// The rank that differs from this one in its index along one axis.
  int64_t with_index(int64_t rank, Axis axis, int64_t index) const;
  /// Ranks that share all of `rank`'s coordinates but those of an axis in levels [first, last), in the order of layout::group.
  std::vector<int64_t> group(int64_t rank, Axis axis, int first, int last) const;
  /// The outermost level in which two ranks differ; -1 for a rank and itself.
  int crossed(int64_t a, int64_t b) const;

  bool operator==(const Mesh&) const = default;

 private:
  /// Ranks between two neighbours along an axis in a level.
  int64_t stride(Axis axis, int level) const;

  std::array<Widths, axes> widths_;
  std::array<Axis, axes> order_ = {Axis::tensor, Axis::data, Axis::pipeline};
};

}  // namespace strata::layout
