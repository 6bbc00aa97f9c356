#pragma once
// Checks on a finished program that no pass may break. They run at the end of every build.

#include <span>

#include "step/program.h"

namespace strata::step {

/// Throws InternalError if a task reads a buffer that nothing wrote, if two buffers alive at once overlap in the arena, if a
/// formal's buffer is too small, or if dependencies form a cycle.
void check(const Program& program);

/// The programs of ranks that send messages to each other (all stages of a pipeline), together: every message is received, with the
/// same size and tag and in the same order at both ends; sums over stages match in order; and no wait goes round in a circle,
/// whatever the speed of ranks and links, messages held back until both ends are ready. Throws InternalError naming rank and task.
void check_together(std::span<const Program> programs);

}  // namespace strata::step
