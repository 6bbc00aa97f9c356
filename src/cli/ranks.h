#pragma once
// A verb that runs on several ranks: what a launcher started, found out and ended in good order.

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/transport.h"
#include "machine/levels.h"
#include "mpi/world.h"

namespace strata::cli {

/// This rank among those that a launcher started, or the only one.
struct Team {
  comm::Transport* transport = nullptr;  ///< null: alone
  int64_t rank = 0, ranks = 1;
  mpi::World* world = nullptr;           ///< null: alone
  std::vector<machine::Level> detected;  ///< what the ranks see of their machine; empty if alone
};

/// Calls `work`. Under a launcher MPI runs meanwhile, and errors end the whole run: those that all ranks have are told once,
/// by rank 0; any other rank that fails says why, and the rest is ended. `json`: as in verb.h.
void with_ranks(bool thread_a_level, double timeout, bool json, const std::function<void(const Team&)>& work);

}  // namespace strata::cli
