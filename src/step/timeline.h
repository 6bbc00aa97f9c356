#pragma once
// When each task ran: execute/ measures it, simulate/ predicts it, report/ draws it.

#include <array>
#include <cstdint>
#include <vector>

#include "step/program.h"

namespace strata::step {

struct Span {
  TaskId task = -1;
  StreamId stream = 0;
  double begin = 0, end = 0;  ///< seconds from the start of the step
};

using Timeline = std::vector<Span>;  ///< one a task, in program order

/// What a task is, for those who see its span but not its program. Plain bytes, so that ranks can send it as it is.
struct TaskLabel {
  std::array<char, 64> name{};  ///< "layers.2 forward", "reduce-scatter gradients layers.2"; cut where longer
  std::array<char, 12> wire{};  ///< wire_name(); transfers only, as all below
  int32_t unit = -1, micro_batch = -1;
  int32_t first_level = -1, last_level = -1;
  int32_t sequence = -1;            ///< the same on all ranks that take part; -1: the task computes
  int64_t bytes = 0, messages = 0;  ///< that this rank sends
  bool transfer() const { return sequence >= 0; }
};

/// One a task, in program order.
std::vector<TaskLabel> task_labels(const Program& program);

}  // namespace strata::step
