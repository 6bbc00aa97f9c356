#pragma once
// When each task of a program would run: streams in order, tasks after what they wait for.

#include <vector>

#include "machine/file.h"
#include "step/exposed.h"
#include "step/program.h"
#include "step/timeline.h"

namespace strata::simulate {

/// Seconds of each task on a machine, in program order. All ranks are taken to run the same program at the same time, so
/// that links are shared as cost_model.h says; transfers of different streams do not slow each other.
std::vector<double> task_seconds(const machine::Machine& machine, const step::Program& program);

/// The timeline of one step: each task begins when its stream is free and all that it waits for is done.
step::Timeline schedule(const step::Program& program, const std::vector<double>& seconds);

/// What a step on the machine would take, and why.
step::StepTime step_time(const machine::Machine& machine, const step::Program& program);

}  // namespace strata::simulate
