#pragma once
// Pipeline schedules: small generators of slots. All that a schedule knows is integers.

#include <cstdint>
#include <vector>

#include "step/program.h"

namespace strata::step {

/// One pass of one micro-batch through one chunk (a stage's consecutive units).
struct ScheduleSlot {
  Phase phase;
  int32_t chunk;
  int32_t micro_batch;
  bool operator==(const ScheduleSlot&) const = default;
};

/// One forward, one backward (PipeDream-flush, Narayanan et al. 2021): stage `stage` of `stages` runs ahead by
/// stages - stage - 1 forwards, then alternates. One stage: each micro-batch's backward follows its forward.
std::vector<ScheduleSlot> one_f_one_b(int32_t stage, int32_t stages, int32_t micro_batches);

/// Forwards alone, for goals without a backward.
std::vector<ScheduleSlot> forward_only(int32_t micro_batches);

}  // namespace strata::step
