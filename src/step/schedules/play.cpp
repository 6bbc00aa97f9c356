#include <algorithm>

#include "step/schedules/schedule.h"

namespace strata::step {

Played play(std::vector<Slots> slots, int32_t chunks, int32_t micro_batches, const SlotLengths& lengths) {
  const size_t stages = slots.size();
  Played result{std::move(slots), std::vector<std::vector<int64_t>>(stages), std::vector<std::vector<int64_t>>(stages)};
  const auto length = [&](Phase phase) {
    switch (phase) {
      case Phase::forward: return lengths.forward;
      case Phase::backward: return lengths.input_half + lengths.weight_half;
      case Phase::backward_input: return lengths.input_half;
      default: return lengths.weight_half;
    }
  };
  // When a micro-batch's forward through a chunk, and its way back, are over; -1: not yet.
  std::vector<int64_t> forwards(static_cast<size_t>(chunks * micro_batches), -1), backwards = forwards;
  std::vector<int64_t> free(stages);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages; ++s)
      while (result.begin[s].size() < result.slots[s].size()) {
        const ScheduleSlot& slot = result.slots[s][result.begin[s].size()];
        const auto at = [&](int32_t chunk) { return static_cast<size_t>(chunk * micro_batches + slot.micro_batch); };
        const bool forward = slot.phase == Phase::forward, weights = slot.phase == Phase::backward_weight;
        int64_t begin = free[s];
        bool open = false;
        const auto need = [&](int64_t done) {
          open |= done < 0;
          begin = std::max(begin, done);
        };
        if (forward && slot.chunk > 0) need(forwards[at(slot.chunk - 1)]);
        if (!forward) need(weights ? backwards[at(slot.chunk)] : forwards[at(slot.chunk)]);
        if (!forward && !weights && slot.chunk + 1 < chunks) need(backwards[at(slot.chunk + 1)]);
        if (open) break;
        free[s] = begin + length(slot.phase);
        result.begin[s].push_back(begin);
        result.end[s].push_back(free[s]);
        if (!weights) (forward ? forwards : backwards)[at(slot.chunk)] = free[s];
        moved = true;
      }
  }
  for (size_t s = 0; s < stages; ++s) result.ends &= result.begin[s].size() == result.slots[s].size();
  return result;
}

}  // namespace strata::step
