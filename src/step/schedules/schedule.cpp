#include "step/schedules/schedule.h"

#include "core/error.h"

namespace strata::step {

using job::Pipeline;

int32_t stage_of(Pipeline pipeline, int32_t chunk, int32_t stages) {
  return pipeline == Pipeline::zb_v && chunk >= stages ? 2 * stages - 1 - chunk : chunk % stages;
}

bool splits_backward(Pipeline pipeline) { return pipeline == Pipeline::zb_h1 || pipeline == Pipeline::zb_v; }

Slots forward_only(Pipeline pipeline, int32_t stage, int32_t stages, int32_t chunks_a_stage, int32_t micro_batches) {
  Slots result;
  // In groups, as interleaving has them: a micro-batch is back at a stage when the group has left it.
  for (int32_t first = 0; first < micro_batches; first += stages)
    for (int32_t chunk = 0; chunk < stages * chunks_a_stage; ++chunk)
      for (int32_t m = first; stage_of(pipeline, chunk, stages) == stage && m < first + stages && m < micro_batches;
           ++m)
        result.push_back({Phase::forward, chunk, m});
  return result;
}

Slots slots(Pipeline pipeline, int32_t stage, int32_t stages, int32_t chunks_a_stage, int32_t micro_batches) {
  switch (pipeline) {
    case Pipeline::gpipe: return gpipe(stage, micro_batches);
    case Pipeline::one_f_one_b: return one_f_one_b(stage, stages, micro_batches);
    case Pipeline::interleaved: return interleaved(stage, stages, chunks_a_stage, micro_batches);
    case Pipeline::zb_h1: return zb_h1(stage, stages, micro_batches);
    case Pipeline::zb_v: return zb_v(stage, stages, micro_batches);
  }
  STRATA_CHECK(false, "a schedule of no name");
  return {};
}

}  // namespace strata::step
