#pragma once
// What the ranks of a run settle among each other outside its steps.

#include <cstdint>
#include <functional>
#include <string>

#include "comm/transport.h"
#include "job/job.h"
#include "step/traffic.h"

namespace strata::train {

/// Throws an input error on every rank, naming those that differ from rank 0, unless all run the same job with the same
/// program file and number of ranks.
void check_same(comm::Control& control, const job::Job& job);

/// Runs `work` on this rank. If it throws on any rank, that rank throws it on and all others throw a run error that names
/// the rank and says what it said: no rank goes on to wait for one that has given up. `control` null: only this rank.
void together(comm::Control* control, const char* what, const std::function<void()>& work);

/// Sum over ranks.
int64_t sum(comm::Control* control, int64_t mine, const char* what);

/// What all ranks sent together. All have the same entries, though some are zero.
step::Traffic sum(comm::Control* control, const step::Traffic& mine);

}  // namespace strata::train
