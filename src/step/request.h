#pragma once
// What a program is built for: a job, on which rank of how many.

#include <cstdint>

#include "job/job.h"

namespace strata::step {

struct Request {
  job::Job job;
  int64_t ranks = 1, rank = 0;
  int64_t generate_rows = 1;  ///< goal generate: new tokens that one run can take
  int64_t front_bytes = 0;    ///< persistent bytes of a program that shares the arena: nothing of the step goes there
  bool inspect = false;       ///< gradients (train) or logits (evaluate) can be read after the step: for verification
};

}  // namespace strata::step
