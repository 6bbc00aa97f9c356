// Pipeline schedules as integers: every slot once, in an order in which no stage waits for ever, with the bubbles and the
// activations in flight that their authors give.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "step/schedules/schedule.h"

namespace strata::step {
namespace {

using job::Pipeline;

int32_t chunks_a_stage(Pipeline pipeline, int32_t wanted) {
  return pipeline == Pipeline::zb_v ? 2 : pipeline == Pipeline::interleaved ? wanted : 1;
}

struct Told {
  int64_t ends = -1;               ///< -1: some stage waits for ever
  std::vector<int64_t> in_flight;  ///< by stage: most chunk activations held at once
};

Told tell(Pipeline pipeline, int32_t stages, int32_t per_stage, int32_t m, const SlotLengths& lengths = {}) {
  std::vector<Slots> lists;
  for (int32_t s = 0; s < stages; ++s) lists.push_back(slots(pipeline, s, stages, per_stage, m));
  const Played played = play(lists, stages * per_stage, m, lengths);
  Told told;
  for (size_t s = 0; s < lists.size(); ++s) {
    int64_t held = 0, most = 0;
    for (const ScheduleSlot& slot : lists[s]) {
      if (slot.phase == Phase::forward) most = std::max(most, ++held);
      if (slot.phase == Phase::backward || slot.phase == Phase::backward_weight) --held;
    }
    told.in_flight.push_back(most);
    if (played.ends) told.ends = std::max(told.ends, played.end[s].back());
  }
  return told;
}

constexpr Pipeline all[] = {Pipeline::gpipe, Pipeline::one_f_one_b, Pipeline::interleaved, Pipeline::zb_h1,
                            Pipeline::zb_v};

TEST(PipelineSchedule, HasEverySlotOnceAndEnds) {
  for (const Pipeline pipeline : all)
    for (int32_t stages = 1; stages <= 8; ++stages)
      for (int32_t wanted = 1; wanted <= (pipeline == Pipeline::interleaved ? 4 : 1); ++wanted)
        for (int32_t m = 1; m <= 20; ++m) {
          const int32_t per_stage = chunks_a_stage(pipeline, wanted);
          std::set<std::tuple<Phase, int32_t, int32_t>> seen;
          size_t listed = 0;
          for (int32_t s = 0; s < stages; ++s) {
            std::map<std::pair<Phase, int32_t>, int32_t> last;
            for (const ScheduleSlot& slot : slots(pipeline, s, stages, per_stage, m)) {
              EXPECT_EQ(stage_of(pipeline, slot.chunk, stages), s);
              seen.insert({slot.phase, slot.chunk, slot.micro_batch});
              ++listed;
              // Sums over micro-batches are in their order.
              const auto [at, fresh] = last.try_emplace({slot.phase, slot.chunk}, -1);
              EXPECT_EQ(slot.micro_batch, at->second + 1);
              at->second = slot.micro_batch;
            }
          }
          const size_t wanted_slots = static_cast<size_t>((splits_backward(pipeline) ? 3 : 2) * stages * per_stage * m);
          ASSERT_EQ(listed, wanted_slots);
          ASSERT_EQ(seen.size(), wanted_slots);
          ASSERT_GT(tell(pipeline, stages, per_stage, m).ends, 0)
              << job::name_of(pipeline) << ", " << stages << " stages of " << per_stage << ", " << m
              << " micro-batches";
        }
}

TEST(PipelineSchedule, BubblesAreThoseOfTheLiterature) {
  const SlotLengths t{2, 2, 2};
  for (int32_t p : {2, 4, 8})
    for (int32_t m : {p, 2 * p, 4 * p}) {
      const int64_t ideal = int64_t{m} * (t.forward + t.input_half + t.weight_half);
      const auto bubble = [&](Pipeline pipeline, int32_t v = 1) {
        const SlotLengths each{t.forward / v, t.input_half / v, t.weight_half / v};
        return tell(pipeline, p, v, m, each).ends - ideal;
      };
      const int64_t usual = int64_t{p - 1} * (t.forward + t.input_half + t.weight_half);
      EXPECT_EQ(bubble(Pipeline::gpipe), usual);
      EXPECT_EQ(bubble(Pipeline::one_f_one_b), usual);
      EXPECT_EQ(bubble(Pipeline::interleaved, 2), usual / 2);
      EXPECT_EQ(bubble(Pipeline::zb_h1), int64_t{p - 1} * (t.forward + t.input_half - t.weight_half));
      if (m == p) continue;  // too few to fill the V
      EXPECT_LE(bubble(Pipeline::zb_v, 2), int64_t{p - 1} * 2) << p << ' ' << m;
    }
}

TEST(PipelineSchedule, ActivationsInFlightAreBounded) {
  for (int32_t p : {2, 4, 8})
    for (int32_t m : {1, 3, p, 3 * p + 1})
      for (int32_t s = 0; s < p; ++s) {
        const auto held = [&](Pipeline pipeline, int32_t v = 1) {
          return tell(pipeline, p, v, m).in_flight[static_cast<size_t>(s)];
        };
        EXPECT_EQ(held(Pipeline::gpipe), m);
        EXPECT_EQ(held(Pipeline::one_f_one_b), std::min(m, p - s));
        EXPECT_LE(held(Pipeline::zb_h1), std::min(m, p));
        const int32_t groups = std::max(1, m / p), largest = (m + groups - 1) / groups;
        EXPECT_LE(held(Pipeline::interleaved, 2), std::min(2 * m, 2 * (p - s - 1) + largest + 1));
        EXPECT_LE(held(Pipeline::zb_v, 2), 2 * std::min(m, p));
      }
}

}  // namespace
}  // namespace strata::step
