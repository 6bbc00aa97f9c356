#pragma once
// When each task ran: execute/ measures it, simulate/ predicts it, report/ draws it.

#include <vector>

#include "step/program.h"

namespace strata::step {

struct Span {
  TaskId task = -1;
  StreamId stream = 0;
  double begin = 0, end = 0;  ///< seconds from the start of the step
};

using Timeline = std::vector<Span>;  ///< one a task, in program order

}  // namespace strata::step
