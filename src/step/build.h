#pragma once
// The lowering: settings and a goal in, a step program out. A pure function: no memory of a model, no device but its
// planner's answers about workspace.

#include "device/device.h"
#include "step/program.h"
#include "step/request.h"

namespace strata::step {

Program build(const Request& request, Goal goal, const device::Planner& planner);

}  // namespace strata::step
