#pragma once
// The one way our kernels use threads: contiguous ranges of independent pieces of work. What a piece computes never
// depends on which thread runs it, so results are the same for any number of threads.

#include <omp.h>

#include <cstdint>

namespace strata::device::cpu {

/// Calls body(begin, end) on ranges that cover [0, count), at most one a thread. With fewer than `least` pieces for each
/// of two threads the caller does them all. Else the team is always `threads` strong: the OpenMP runtime ends threads and
/// allocates when a team's size changes.
template <typename Body>
void parallel_for(int threads, int64_t count, int64_t least, const Body& body) {
  if (threads == 1 || count < 2 * least) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    // OpenMP may grant fewer threads than asked for.
    const int64_t size = omp_get_num_threads(), rank = omp_get_thread_num();
    const int64_t begin = count * rank / size, end = count * (rank + 1) / size;
    if (begin < end) body(begin, end);
  }
}

}  // namespace strata::device::cpu
