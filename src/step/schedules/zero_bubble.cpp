#include <algorithm>
#include <array>

#include "core/error.h"
#include "step/schedules/schedule.h"

namespace strata::step {

Slots zb_h1(int32_t stage, int32_t stages, int32_t micro_batches) {
  Slots result;
  int32_t weights = 0;  // micro-batches whose weight gradients are listed
  for (const ScheduleSlot& slot : one_f_one_b(stage, stages, micro_batches)) {
    if (slot.phase == Phase::forward) {
      result.push_back(slot);
      continue;
    }
    result.push_back({Phase::backward_input, stage, slot.micro_batch});
    if (slot.micro_batch >= stage) result.push_back({Phase::backward_weight, stage, weights++});
  }
  while (weights < micro_batches) result.push_back({Phase::backward_weight, stage, weights++});
  return result;
}

namespace {

/// All stages at once, each slot a unit of time: what a stage begins is what it lists.
class VShape {
 public:
  VShape(int32_t stages, int32_t micro_batches) : stages_(stages), micro_batches_(micro_batches), each_(stages) {
    const auto chunks = static_cast<size_t>(2 * stages);
    done_.assign(chunks, {});
    for (auto& chunk : done_)
      for (auto& phase : chunk) phase.assign(static_cast<size_t>(micro_batches), never);
  }

  Slots run(int32_t wanted) {
    const int64_t all = 6 * int64_t{micro_batches_};
    for (int64_t now = 0; static_cast<int64_t>(each_[static_cast<size_t>(wanted)].slots.size()) < all; ++now) {
      STRATA_CHECK(now < 100 * (all + stages_), "no slot is ever ready");
      for (int32_t stage = 0; stage < stages_; ++stage) step(stage, now);
    }
    return std::move(each_[static_cast<size_t>(wanted)].slots);
  }

 private:
  static constexpr int64_t never = INT64_MAX;
  enum Kind { forward, input, weight, kinds };
  struct Stage {
    Slots slots;
    std::array<std::array<int32_t, kinds>, 2> next{};  ///< by the stage's chunk: the next micro-batch
    int32_t held = 0;                                  ///< activations
  };

  int32_t chunk_of(int32_t stage, int which) const { return which == 0 ? stage : 2 * stages_ - 1 - stage; }

  bool ready(int32_t chunk, Kind kind, int32_t m, int64_t now) const {
    if (m == micro_batches_) return false;
    const auto over = [&](int32_t c, Kind k) {
      return done_[static_cast<size_t>(c)][k][static_cast<size_t>(m)] <= now;
    };
    switch (kind) {
      case forward: return chunk == 0 || over(chunk - 1, forward);
      case input: return over(chunk, forward) && (chunk + 1 == 2 * stages_ || over(chunk + 1, input));
      default: return over(chunk, input);
    }
  }

  void step(int32_t stage, int64_t now) {
    Stage& s = each_[static_cast<size_t>(stage)];
    const auto take = [&](int which, Kind kind) {
      const int32_t chunk = chunk_of(stage, which), m = s.next[static_cast<size_t>(which)][kind];
      if (!ready(chunk, kind, m, now)) return false;
      // Room for the way back of what has gone out is kept.
      const int32_t most = 2 * stages_ - (which == 0 ? 1 : 0);
      if (kind == forward && s.held >= most) return false;
      constexpr Phase phases[] = {Phase::forward, Phase::backward_input, Phase::backward_weight};
      s.slots.push_back({phases[kind], chunk, m});
      ++s.next[static_cast<size_t>(which)][kind];
      s.held += kind == forward ? 1 : kind == weight ? -1 : 0;
      done_[static_cast<size_t>(chunk)][kind][static_cast<size_t>(m)] = now + 1;
      return true;
    };
    // The second chunk's first: others wait for it longest.
    for (const Kind kind : {input, forward, weight})
      for (const int which : {1, 0})
        if (take(which, kind)) return;
  }

  int32_t stages_, micro_batches_;
  std::vector<Stage> each_;
  std::vector<std::array<std::vector<int64_t>, kinds>> done_;  ///< by chunk, kind and micro-batch: when it is over
};

}  // namespace

Slots zb_v(int32_t stage, int32_t stages, int32_t micro_batches) { return VShape(stages, micro_batches).run(stage); }

}  // namespace strata::step
