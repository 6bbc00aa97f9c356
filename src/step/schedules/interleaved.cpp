#include <algorithm>

#include "step/schedules/schedule.h"

namespace strata::step {

Slots interleaved(int32_t stage, int32_t stages, int32_t chunks_a_stage, int32_t micro_batches) {
  // Groups as even as they go; a group smaller than there are stages would have stages wait for each other.
  const int32_t groups = std::max(1, micro_batches / stages), least = micro_batches / groups,
                more = micro_batches % groups;
  // The order in which a stage's chunks see micro-batches; backwards in the same order from the last chunk to the first.
  Slots forwards, backwards;
  for (int32_t group = 0, first = 0; group < groups; ++group) {
    const int32_t end = first + least + (group < more ? 1 : 0);
    for (int32_t c = 0; c < chunks_a_stage; ++c)
      for (int32_t m = first; m < end; ++m) {
        forwards.push_back({Phase::forward, stage + c * stages, m});
        backwards.push_back({Phase::backward, stage + (chunks_a_stage - 1 - c) * stages, m});
      }
    first = end;
  }
  const int32_t largest = least + (more > 0 ? 1 : 0);
  const size_t all = forwards.size();
  const auto ahead = std::min(all, static_cast<size_t>(2 * (stages - stage - 1) + (chunks_a_stage - 1) * largest));
  Slots result(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (size_t i = 0; i < all; ++i) {
    if (ahead + i < all) result.push_back(forwards[ahead + i]);
    result.push_back(backwards[i]);
  }
  return result;
}

}  // namespace strata::step
