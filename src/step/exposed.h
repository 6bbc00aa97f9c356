#pragma once
// Why a step lasts longer than its computing: communication that nothing hid, by what it was for.

#include <vector>

#include "step/program.h"
#include "step/timeline.h"

namespace strata::step {

struct Exposed {
  Purpose purpose;
  int32_t first_level = 0, last_level = 0;  ///< of the transfers
  double seconds = 0;
};

struct StepTime {
  double seconds = 0;            ///< until the last task ends
  double computing = 0;          ///< of computing tasks
  double idle = 0;               ///< between computing tasks that waited for no transfer: the host's own time
  std::vector<Exposed> exposed;  ///< largest first; all of these add up to `seconds`
};

/// Every moment in which nothing computes is laid to the transfer that the next computing task waits for, going back along
/// what that one waited for in turn; after the last task that computes, to what is still under way.
StepTime step_time(const Program& program, const Timeline& timeline);

}  // namespace strata::step
