#pragma once
// Trains one small job in every layout that so many ranks allow, and holds each against the one that it must equal.

#include <functional>
#include <string>
#include <vector>

#include "job/job.h"

namespace strata::train {

struct LayoutRow {
  std::string layout;               ///< "zero3, 2 stages of zb-h1, 4 micro-batches"
  std::string against;              ///< the layout that it is held against; "": it is held against none
  bool same = false;                ///< every loss, gradient norm and final weight, bit for bit
  bool bitwise = true;              ///< whether `same` is wanted; else the deviation below is bounded
  double deviation = 0, bound = 0;  ///< of losses, relative, the largest over steps
  std::string first;                ///< where bits differ first: a step's loss or norm, else a parameter
  bool passed() const { return same || (!bitwise && deviation <= bound); }
};

struct LayoutsOn {
  int64_t ranks = 8;  ///< threads of this process, on a made-up tree of three levels
  int steps = 3;
  std::vector<int64_t> micro_batches = {1, 4, 7};
};

/// Placements as presets x pipeline depths x schedules x micro-batches, on full wires with collectives by level; and for the job's own
/// placement recompute, prefetch and overlap. Tokens are made up, a function of their place in the run. In fp32 layouts of the same
/// data-parallel widths give the same bits over depth, schedule, recompute, prefetch and overlap, and over placements at one
/// micro-batch; with more, placements agree to 1e-5 of the loss. Calls `tell` with each row as it comes. Throws an input error for a
/// job that is not fp32.
std::vector<LayoutRow> verify_layouts(const job::Job& job, const LayoutsOn& on,
                                      const std::function<void(const LayoutRow&)>& tell);

}  // namespace strata::train
