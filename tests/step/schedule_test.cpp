#include "step/schedules/schedule.h"

#include <gtest/gtest.h>

#include <set>

namespace strata::step {
namespace {

TEST(OneForwardOneBackward, EverySlotOnceForwardBeforeBackwardAndNoMoreInFlightThanStagesLeft) {
  for (int stages : {1, 2, 4})
    for (int stage = 0; stage < stages; ++stage)
      for (int micro_batches : {1, 2, 3, 7}) {
        std::set<int> forwards, backwards;
        int most_in_flight = 0;
        for (const ScheduleSlot& slot : one_f_one_b(stage, stages, micro_batches)) {
          if (slot.phase == Phase::forward) {
            EXPECT_TRUE(forwards.insert(slot.micro_batch).second);
          } else {
            EXPECT_TRUE(forwards.contains(slot.micro_batch));
            EXPECT_TRUE(backwards.insert(slot.micro_batch).second);
          }
          most_in_flight = std::max(most_in_flight, static_cast<int>(forwards.size() - backwards.size()));
        }
        EXPECT_EQ(static_cast<int>(forwards.size()), micro_batches);
        EXPECT_EQ(forwards, backwards);
        EXPECT_EQ(most_in_flight, std::min(micro_batches, stages - stage));
      }
}

}  // namespace
}  // namespace strata::step
