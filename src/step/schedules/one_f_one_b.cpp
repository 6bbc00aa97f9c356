#include <algorithm>

#include "step/schedules/schedule.h"

namespace strata::step {

Slots one_f_one_b(int32_t stage, int32_t stages, int32_t micro_batches) {
  Slots result;
  const int32_t ahead = std::min(stages - stage - 1, micro_batches);
  for (int32_t m = 0; m < ahead; ++m) result.push_back({Phase::forward, stage, m});
  for (int32_t m = 0; m < micro_batches; ++m) {
    if (ahead + m < micro_batches) result.push_back({Phase::forward, stage, ahead + m});
    result.push_back({Phase::backward, stage, m});
  }
  return result;
}

}  // namespace strata::step
