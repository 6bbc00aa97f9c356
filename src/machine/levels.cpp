#include "machine/levels.h"

#include <array>

#include "core/error.h"

namespace strata::machine {

std::span<const std::string> usual_level_names() {
  static const std::array<std::string, 3> names = {"package", "node", "system"};
  return names;
}

std::vector<Level> fill_levels(std::span<const Level> levels, int64_t ranks, const std::string& where) {
  STRATA_CHECK(ranks > 0 && !levels.empty());
  int64_t inner = 1;
  std::string product;
  for (const Level& level : levels) {
    if (level.width == 0) continue;
    // More ranks than can exist: stop before the product overflows.
    if (inner > INT64_MAX / level.width) throw input_error("{}: the product of the widths is too large", where);
    inner *= level.width;
    product += fmt::format("{}{} {}", product.empty() ? "" : " x ", level.width, level.name);
  }

  std::vector<Level> result(levels.begin(), levels.end());
  if (result.back().width == 0) {
    if (product.empty()) product += '1';
    if (ranks % inner != 0) {
      const int64_t below = ranks / inner * inner;
      throw input_error("{}: {} ranks are not a multiple of {} = {}; use {}{} ranks, or change the levels", where,
                        ranks, product, inner, below > 0 ? fmt::format("{} or ", below) : "", below + inner);
    }
    result.back().width = ranks / inner;
  } else if (inner != ranks) {
    throw input_error("{}: {} = {} ranks, but there are {}; use {} ranks, or \"*\" for the outermost width", where,
                      product, inner, ranks, inner);
  }
  return result;
}

std::vector<Level> one_host(int64_t ranks) {
  const auto names = usual_level_names();
  return {{names[0], ranks}, {names[1], 1}, {names[2], 1}};
}

}  // namespace strata::machine
