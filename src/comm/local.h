#pragma once
// Ranks that are threads of one process: the same programs, messages and sums as under MPI, without a launcher. For tests,
// and for looking at many ranks under a debugger or a sanitizer.

#include <functional>
#include <memory>
#include <vector>

#include "comm/transport.h"

namespace strata::comm {

/// The mailboxes of `ranks` threads. Outlives the transports; each rank() may be taken by one thread at a time.
class LocalWorld {
 public:
  explicit LocalWorld(int64_t ranks);
  ~LocalWorld();
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;
  Transport& rank(int64_t rank);
  int64_t ranks() const;

 private:
  class Rank;
  struct Channel;
  std::vector<std::unique_ptr<Channel>> channels_;  ///< by sender, then receiver
  std::vector<std::unique_ptr<Rank>> ranks_;
};

/// Calls `work` on a thread for each rank and waits for all. Throws what the lowest rank that failed threw.
void on_local_ranks(int64_t ranks, const std::function<void(Transport&)>& work);

}  // namespace strata::comm
