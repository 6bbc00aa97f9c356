#pragma once
// The one way our kernels use threads: contiguous ranges of independent pieces of work. What a piece computes never
// depends on which thread runs it, so results are the same for any number of threads.

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace strata::device::cpu {

/// Calls body(begin, end) on ranges that cover [0, count), at most one a thread. Work of fewer than `least` pieces a
/// thread is not worth waking another one.
template <typename Body>
void parallel_for(int threads, int64_t count, int64_t least, const Body& body) {
  const int team = static_cast<int>(std::clamp<int64_t>(count / std::max<int64_t>(least, 1), 1, threads));
  if (team == 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(team)
  {
    // OpenMP may grant fewer threads than asked for.
    const int64_t size = omp_get_num_threads(), rank = omp_get_thread_num();
    const int64_t begin = count * rank / size, end = count * (rank + 1) / size;
    if (begin < end) body(begin, end);
  }
}

}  // namespace strata::device::cpu
