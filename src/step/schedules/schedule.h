#pragma once
// Pipeline schedules: small generators of slots. All that a schedule knows is integers.
//
// A model is cut into chunks of consecutive units, numbered in order of the forward pass; each stage holds one, or as many as the
// schedule says. A slot is what a stage does for one micro-batch in one of its chunks.

#include <cstdint>
#include <vector>

#include "job/job.h"
#include "step/program.h"

namespace strata::step {

/// One pass of one micro-batch through one chunk.
struct ScheduleSlot {
  Phase phase;
  int32_t chunk;
  int32_t micro_batch;
  bool operator==(const ScheduleSlot&) const = default;
};
using Slots = std::vector<ScheduleSlot>;

/// All forwards, then all backwards (Huang et al. 2019). Chunk `stage` of `stages`.
Slots gpipe(int32_t stage, int32_t micro_batches);

/// One forward, one backward (PipeDream-flush, Narayanan et al. 2021): stage `stage` of `stages` runs ahead by
/// stages - stage - 1 forwards, then alternates. One stage: each micro-batch's backward follows its forward.
Slots one_f_one_b(int32_t stage, int32_t stages, int32_t micro_batches);

/// The same over several chunks a stage: stage s holds chunks s, s + stages, ... (Narayanan et al. 2021, section 2.2).
/// Micro-batches go through a stage's chunks in groups of `stages`, or somewhat more where those do not divide them.
Slots interleaved(int32_t stage, int32_t stages, int32_t chunks_a_stage, int32_t micro_batches);

/// One forward, one backward, with the weight gradients of a micro-batch later than its input gradients: stage s puts them off
/// by s micro-batches, which fills the end and holds no more activations than the first stage has anyway (ZB-H1, Qi et al. 2024).
Slots zb_h1(int32_t stage, int32_t stages, int32_t micro_batches);

/// Two chunks a stage in a V: stage s holds chunks s and 2 stages - 1 - s, so that the last is where the first is (ZB-V, Qi et
/// al. 2024). Whatever is ready is done: input gradients first, then forwards as long as no more activations are held than one
/// forward, one backward would hold, else weight gradients.
Slots zb_v(int32_t stage, int32_t stages, int32_t micro_batches);

/// Forwards alone, for goals without a backward: every micro-batch through a stage's chunks.
Slots forward_only(job::Pipeline pipeline, int32_t stage, int32_t stages, int32_t chunks_a_stage,
                   int32_t micro_batches);

/// A stage's slots in a job's schedule.
Slots slots(job::Pipeline pipeline, int32_t stage, int32_t stages, int32_t chunks_a_stage, int32_t micro_batches);

/// How long slots last.
struct SlotLengths {
  int64_t forward = 1, input_half = 1, weight_half = 1;
};
/// All stages' slots, each when its stage is free and what it needs is done; messages take no time.
struct Played {
  std::vector<Slots> slots;                      ///< by stage
  std::vector<std::vector<int64_t>> begin, end;  ///< by stage and slot
  bool ends = true;                              ///< false: some stage waits for ever, and times past that are none
};
Played play(std::vector<Slots> slots, int32_t chunks, int32_t micro_batches, const SlotLengths& lengths = {});

/// The stage that holds a chunk.
int32_t stage_of(job::Pipeline pipeline, int32_t chunk, int32_t stages);
/// Whether backward passes come in two halves.
bool splits_backward(job::Pipeline pipeline);

}  // namespace strata::step
