#include <algorithm>

#include "step/schedules/schedule.h"

namespace strata::step {

std::vector<ScheduleSlot> one_f_one_b(int32_t stage, int32_t stages, int32_t micro_batches) {
  std::vector<ScheduleSlot> slots;
  const int32_t ahead = std::min(stages - stage - 1, micro_batches);
  for (int32_t m = 0; m < ahead; ++m) slots.push_back({Phase::forward, 0, m});
  for (int32_t m = 0; m < micro_batches; ++m) {
    if (ahead + m < micro_batches) slots.push_back({Phase::forward, 0, ahead + m});
    slots.push_back({Phase::backward, 0, m});
  }
  return slots;
}

std::vector<ScheduleSlot> forward_only(int32_t micro_batches) {
  std::vector<ScheduleSlot> slots;
  for (int32_t m = 0; m < micro_batches; ++m) slots.push_back({Phase::forward, 0, m});
  return slots;
}

}  // namespace strata::step
