#pragma once
// A traced step's timelines, from all ranks to rank 0.

#include "comm/transport.h"
#include "execute/executor.h"
#include "train/observer.h"

namespace strata::train {

/// What all ranks' executors did in their last run, on rank 0; empty elsewhere. All ranks call it, between steps. Compares
/// clocks first, so that their drift since the run is that of one step. `control` null: only this rank.
TimelineReport collect_timelines(comm::Control* control, const execute::Executor& executor, int64_t step);

}  // namespace strata::train
