// A stage's part of the pipeline: its slots in order, and what it gets from and hands to its neighbours.

#include <algorithm>
#include <map>
#include <tuple>

#include "core/error.h"
#include "step/lowering.h"
#include "step/schedules/schedule.h"

namespace strata::step {

using ops::Role;

namespace {

class Stage {
 public:
  Stage(Lowering& lowering, Sharding& sharding) : lowering_(lowering), sharding_(sharding) {}

  /// The message that a slot waits for.
  void receive(const ScheduleSlot& slot) {
    if (slot.phase == Phase::forward && slot.chunk > 0)
      border(slot.chunk - 1, slot.micro_batch, true, false);
    else if (backwards(slot))
      border(slot.chunk, slot.micro_batch, false, false);
  }

  void run(const ScheduleSlot& slot) {
    const job::UnitRange range = lowering_.chunks[static_cast<size_t>(slot.chunk)];
    if (slot.phase == Phase::forward) {
      for (int32_t u = range.first; u < range.last; ++u) run(unit(u), blocks(u).forward, slot.micro_batch);
      border(slot.chunk, slot.micro_batch, true, true);
      return;
    }
    for (int32_t u = range.last; u-- > range.first;) {
      const UnitBlocks& of = blocks(u);
      const UnitBlocks::Backward& backward = slot.phase == Phase::backward         ? of.backward
                                             : slot.phase == Phase::backward_input ? of.input_half
                                                                                   : of.weight_half;
      run(unit(u), backward.of(slot.micro_batch), slot.micro_batch);
      if (slot.phase != Phase::backward_input) sharding_.after_backward(unit(u), slot.micro_batch);
    }
    if (backwards(slot) && slot.chunk > 0) border(slot.chunk - 1, slot.micro_batch, false, true);
  }

 private:
  static bool backwards(const ScheduleSlot& slot) {
    return slot.phase == Phase::backward || slot.phase == Phase::backward_input;
  }
  const model::Unit& unit(int32_t number) const { return lowering_.units[static_cast<size_t>(number)]; }
  const UnitBlocks& blocks(int32_t number) const { return lowering_.blocks_of(unit(number)); }

  void run(const model::Unit& of, BlockId block, int32_t micro_batch) {
    if (block < 0) return;
    sharding_.before(of, block, micro_batch);
    lowering_.add_compute(block, of.index, micro_batch);
  }

  /// What crosses the border between chunk `below` and the next, if they are on different stages: the activation forwards, its
  /// gradient backwards.
  void border(int32_t below, int32_t micro_batch, bool forward, bool sends) {
    const auto chunks = static_cast<int32_t>(lowering_.chunks.size());
    if (below + 1 == chunks) return;
    const int32_t last = lowering_.chunks[static_cast<size_t>(below)].last - 1;
    const int32_t lower = lowering_.stage_of(unit(last)), upper = lowering_.stage_of(unit(last + 1));
    if (lower == upper) return;
    const bool v_shaped = lowering_.request.job.schedule.pipeline == job::Pipeline::zb_v;
    const int64_t bytes = lowering_.program.batch * lowering_.program.sequence * lowering_.request.job.model.hidden *
                          size_of(lowering_.compute());
    const BufferId values = lowering_.buffer(forward ? Role::output : Role::output_gradient, last, micro_batch, bytes);
    const int32_t from = forward ? lower : upper, to = forward ? upper : lower;
    STRATA_CHECK(lowering_.stage == (sends ? from : to));
    lowering_.add_message(forward ? Purpose::activations : Purpose::activation_gradients, last, micro_batch, from, to,
                          values, lowering_.compute(), (micro_batch * chunks + below) * 2 + (forward ? 0 : 1),
                          (forward ? 0 : 1) + (lower > upper && v_shaped ? 2 : 0));
  }

  Lowering& lowering_;
  Sharding& sharding_;
};

}  // namespace

void add_slots(Lowering& lowering, Sharding& sharding) {
  const job::Job& job = lowering.request.job;
  const job::Pipeline pipeline = job.schedule.pipeline;
  const int32_t micro_batches = lowering.program.micro_batches, each = job::chunks_a_stage(job),
                stages = lowering.stages;
  const auto chunks = static_cast<int32_t>(lowering.chunks.size());
  std::vector<Slots> lists;
  for (int32_t s = 0; s < stages; ++s)
    lists.push_back(lowering.goal == Goal::train ? slots(pipeline, s, stages, each, micro_batches)
                                                 : forward_only(pipeline, s, stages, each, micro_batches));
  const Played played = play(std::move(lists), chunks, micro_batches);
  STRATA_CHECK(played.ends, "a schedule in which stages wait for each other");
  const auto own = static_cast<size_t>(lowering.stage);
  const Slots& list = played.slots[own];

  // A message is asked for when, with all slots equally long, it would be sent: before, there is no use for its memory; later, the
  // sender could wait for this stage while this stage waits for it. All waits then go back in that time.
  struct Arrival {
    size_t before, slot;
    int64_t at;
  };
  std::vector<Arrival> arrivals;
  std::map<std::tuple<bool, int32_t, int32_t>, int64_t> over;  // (forward, chunk, micro-batch)
  for (size_t s = 0; s < played.slots.size(); ++s)
    for (size_t i = 0; i < played.slots[s].size(); ++i)
      if (const ScheduleSlot& slot = played.slots[s][i]; slot.phase != Phase::backward_weight)
        over[{slot.phase == Phase::forward, slot.chunk, slot.micro_batch}] = played.end[s][i];
  for (size_t i = 0; i < list.size(); ++i) {
    const bool forward = list[i].phase == Phase::forward;
    const int32_t from = forward ? list[i].chunk - 1 : list[i].chunk + 1;
    if (list[i].phase == Phase::backward_weight || from < 0 || from == chunks) continue;
    const int64_t at = over.at({forward, from, list[i].micro_batch});
    const auto before =
        std::lower_bound(played.begin[own].begin(), played.begin[own].end(), at) - played.begin[own].begin();
    arrivals.push_back({static_cast<size_t>(before), i, at});
  }
  std::stable_sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) { return a.at < b.at; });

  Stage stage(lowering, sharding);
  auto next = arrivals.begin();
  for (size_t i = 0; i < list.size(); ++i) {
    for (; next != arrivals.end() && next->before <= i; ++next) stage.receive(list[next->slot]);
    stage.run(list[i]);
  }
}

void exchange_tied_gradients(Lowering& lowering) {
  if (!lowering.tied_apart()) return;
  const model::Unit& embedding = lowering.units.front();
  const int64_t table = embedding.parameter("table").shape.elements() * size_of(DType::f32);
  const int32_t first = lowering.stage_of(embedding), last = lowering.stage_of(lowering.units.back());
  // Behind all micro-batches' numbers.
  const auto number = 2 * lowering.program.micro_batches * static_cast<int32_t>(lowering.chunks.size());
  lowering.add_message(Purpose::tie, 0, -1, first, last,
                       lowering.buffer(Role::gradient, 0, -1, lowering.elements(embedding) * size_of(DType::f32)),
                       DType::f32, number, 0);
  lowering.add_message(Purpose::tie, 0, -1, last, first, lowering.buffer(Role::tied_gradient, 0, -1, table), DType::f32,
                       number + 1, 1);
}

}  // namespace strata::step
