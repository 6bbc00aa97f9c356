#pragma once
// Checks on a finished program that no pass may break. They run at the end of every build.

#include "step/program.h"

namespace strata::step {

/// Throws InternalError if a task reads a buffer that nothing wrote, if two buffers alive at once overlap in the arena, if a
/// formal's buffer is too small, or if dependencies form a cycle.
void check(const Program& program);

}  // namespace strata::step
