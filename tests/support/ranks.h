#pragma once
// Several ranks as threads of the test.

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "comm/local.h"

namespace strata::test {

/// Calls `work` on a thread for each rank and waits for all. Throws what the lowest rank that failed threw.
inline void on_ranks(int64_t ranks, const std::function<void(comm::Transport&)>& work) {
  comm::LocalWorld world(ranks);
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(world.rank(rank));
      } catch (...) {
        thrown[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : thrown)
    if (error) std::rethrow_exception(error);
}

}  // namespace strata::test
