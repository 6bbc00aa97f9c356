#pragma once
// From a unit's forward operations to blocks: operand lists made, temporaries placed, workspace asked for.

#include <string>
#include <vector>

#include "device/device.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/unit.h"
#include "step/program.h"
#include "step/request.h"

namespace strata::step {

/// One unit's operations, forward and backward, over one list of tensors. What the backward reads of the forward has role
/// `saved` and an offset in the unit's saved buffer.
struct UnitLowering {
  std::vector<ops::Tensor> tensors;
  std::vector<ops::Op> forward, backward;
  int64_t saved_bytes = 0, held_bytes = 0;
};

/// `goal` train makes both lists; evaluate and generate the forward alone.
UnitLowering lower_unit(const Request& request, const model::Unit& unit, const model::Dimensions& dimensions,
                        Goal goal);

/// Cuts the backward in two: by operation, whether it is in the half for weights. What the input half makes and the other reads
/// gets role `held` and an offset in the unit's held buffer. What is made again goes where it is needed first.
std::vector<bool> split_backward(UnitLowering& unit);

/// Sizes of the formals that are more than the tensors a block happens to touch.
struct FormalBytes {
  int64_t parameters = 0, gradients = 0, saved = 0, held = 0;
};

/// A block out of operations that index `tensors`: keeps the tensors used, adds the device's workspace, puts temporaries on
/// top of inputs that die where an operation allows it, and places the rest in the block's scratch. `later`: operations of another
/// block that run after this one and find unchanged what they read.
Block make_block(std::string name, Phase phase, std::vector<ops::Op> ops, const std::vector<ops::Tensor>& tensors,
                 const FormalBytes& bytes, const device::Planner& planner, const std::vector<ops::Op>& later = {});

}  // namespace strata::step
