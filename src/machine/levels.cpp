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

std::vector<Level> detected(std::span<const int64_t> nodes, std::span<const int64_t> packages) {
  const auto ranks = static_cast<int64_t>(nodes.size());
  STRATA_CHECK(ranks > 0 && packages.size() == nodes.size());
  const auto names = usual_level_names();
  // How many ranks from `rank` on share what `of` says.
  const auto run = [&](std::span<const int64_t> of, int64_t rank, int64_t end) {
    int64_t length = 0;
    while (rank + length < end && of[static_cast<size_t>(rank + length)] == of[static_cast<size_t>(rank)]) ++length;
    return length;
  };
  const int64_t on_node = run(nodes, 0, ranks);
  for (int64_t rank = 0; rank < ranks; rank += on_node) {
    if (nodes[static_cast<size_t>(rank)] != rank)
      throw input_error(
          "mesh.levels is not given, and the ranks of a node are not neighbours (rank {} shares a node with rank {}): "
          "place ranks node by node (mpirun --map-by slot, srun --distribution=block), or give mesh.levels",
          rank, nodes[static_cast<size_t>(rank)]);
    if (const int64_t here = run(nodes, rank, ranks); here != on_node)
      throw input_error(
          "mesh.levels is not given, and nodes hold different numbers of ranks ({} on the node of rank 0, {} on that "
          "of "
          "rank {}): start as many on each, or give mesh.levels",
          on_node, here, rank);
  }
  int64_t in_package = packages[0] < 0 ? on_node : run(packages, 0, on_node);
  for (int64_t rank = 0; rank < ranks; rank += in_package)
    if (packages[static_cast<size_t>(rank)] < 0 ||
        run(packages, rank, rank / on_node * on_node + on_node) != in_package)
      in_package = on_node;
  return {{names[0], in_package}, {names[1], on_node / in_package}, {names[2], ranks / on_node}};
}

}  // namespace strata::machine
