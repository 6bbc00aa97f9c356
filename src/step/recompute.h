#pragma once
// What of the forward is kept for the backward, and what is made again. By policy: none keeps all that the backward reads;
// selective makes attention's output again from its queries, keys and values; full keeps only each layer's input.

#include "step/blocks.h"

namespace strata::step {

/// Marks the forward tensors that the backward reads as saved, or lists the operations that make them again just before
/// their first use. The same kernels on the same inputs: the same bits.
void apply_recompute(UnitLowering& unit, job::Recompute recompute);

}  // namespace strata::step
