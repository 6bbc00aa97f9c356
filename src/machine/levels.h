#pragma once
// A machine as a tree of levels, innermost first: names and widths.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata::machine {

struct Level {
  std::string name;
  int64_t width = 0;  ///< how many of the level inside it (or ranks) one has; 0, outermost only: as many as there are
  bool operator==(const Level&) const = default;
};

/// Names of a made-up tree of three levels: package, node, system. Trees of other depths name their own.
std::span<const std::string> usual_level_names();

/// The levels with every width known, so that their product is `ranks`. Throws an input error, opened by `where`, with
/// the arithmetic and the nearest rank counts that work.
std::vector<Level> fill_levels(std::span<const Level> levels, int64_t ranks, const std::string& where);

/// What holds when nothing is known of the machine: all ranks in one package of one node, under the usual names.
std::vector<Level> one_host(int64_t ranks);

/// The package (socket) whose cores alone this process is bound to, as hwloc sees it; -1 if it may run on several, or if
/// that cannot be told.
int64_t package_of_process();

/// What a running job sees of its machine: for each rank the lowest rank on its node (MPI's split by shared memory), and the
/// package that it is bound to or -1. Where every package of every node has as many ranks, they make a level; else the ranks
/// of a node are one package. Throws an input error when nodes hold different numbers of ranks, or when the ranks of a node
/// are not neighbours.
std::vector<Level> detected(std::span<const int64_t> nodes, std::span<const int64_t> packages);

}  // namespace strata::machine
