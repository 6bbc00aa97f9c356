#pragma once
// The arithmetic of the global batch: global = micro x accumulation x data-parallel ranks.

#include <cstdint>
#include <string>

#include "job/job.h"

namespace strata::job {

struct BatchPlan {
  int64_t global = 0;         ///< sequences a step
  int64_t micro = 0;          ///< sequences of a micro-batch
  int64_t accumulation = 0;   ///< micro-batches a step on each data-parallel rank
  int64_t data_parallel = 0;  ///< = ranks / (tensor x pipeline)
  int64_t ranks = 0, tensor = 1, pipeline = 1;
  bool operator==(const BatchPlan&) const = default;
};

/// Throws an input error with the equation in the job's own numbers and the nearest settings that work. `where` (a
/// file) opens the message.
BatchPlan resolve_batch(const Job& job, int64_t ranks, const std::string& where = "");

/// "512 sequences = 4 micro x 32 accumulation x 4 data-parallel ranks (4 ranks / 1 tensor / 1 pipeline)"
std::string describe(const BatchPlan& plan);

}  // namespace strata::job
