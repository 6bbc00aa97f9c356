#pragma once
// One clock for what several ranks measure: how far each rank's steady clock is from rank 0's.

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/transport.h"

namespace strata::train {

/// Of one rank's steady clock against rank 0's.
struct ClockOffset {
  int64_t nanoseconds = 0;  ///< to be added to the rank's clock to have rank 0's
  int64_t error = 0;        ///< by how many nanoseconds that may be wrong, at most
};

/// Nanoseconds of this rank's steady clock.
int64_t steady_nanoseconds();
int64_t steady_nanoseconds(std::chrono::steady_clock::time_point time);

/// All ranks call this; rank 0 gets every rank's offset, the others nothing. Rank 0 asks each rank for its time, some times
/// over: the answer was given between the question and its arrival, so half the shortest round trip bounds the error
/// (Cristian, Distributed Computing 3, 1989). Clocks drift apart by some microseconds a second: measure when it matters.
/// `now`: the clock that is read.
std::vector<ClockOffset> measure_clocks(
    comm::Control& control, const std::function<int64_t()>& now = [] { return steady_nanoseconds(); });

}  // namespace strata::train
