#include "step/schedules/schedule.h"

namespace strata::step {

Slots gpipe(int32_t stage, int32_t micro_batches) {
  Slots result;
  for (const Phase phase : {Phase::forward, Phase::backward})
    for (int32_t m = 0; m < micro_batches; ++m) result.push_back({phase, stage, m});
  return result;
}

}  // namespace strata::step
