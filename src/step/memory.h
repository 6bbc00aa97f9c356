#pragma once
// Memory of a finished program: who lives when, and what the peak is made of.

#include <array>
#include <vector>

#include "step/place.h"
#include "step/program.h"

namespace strata::step {

/// First and last task that uses each buffer (inputs from the first task on, results to the last). A view counts
/// for its owner and has an empty life.
std::vector<Interval> lives(const Program& program);

struct MemoryPeak {
  std::array<int64_t, buffer_kinds> by_kind{};  ///< bytes alive at the peak, each buffer rounded up to the alignment
  int64_t alive_bytes = 0;                      ///< their sum
  int64_t unused_bytes = 0;                     ///< of the arena at that moment: gaps that no placement filled
  TaskId task = -1;                             ///< where
};

MemoryPeak memory_peak(const Program& program);

}  // namespace strata::step
