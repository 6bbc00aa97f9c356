#pragma once
// What a placement comes to on one rank, in numbers: the states that it keeps, beside their closed forms, and what it sends in a
// step, split into what every micro-batch repeats and what comes once.

#include <string>
#include <vector>

#include "step/program.h"
#include "step/request.h"
#include "step/traffic.h"

namespace strata::step {

/// One kind of state. The closed form is bytes_per_parameter * PlacementSummary::padded / ranks, as AMSP's
/// 2 P / s_p + 2 P / s_g + 12 P / s_os (arXiv 2311.00257) with the types that this job keeps its states in.
struct StateShare {
  std::string state;  ///< "weights", "secondary", "gradients", "master", "optimizer" (both moments)
  int reach = 0;      ///< levels over which peers share one copy; 0: every rank has its own
  int64_t ranks = 1;  ///< that share it
  double bytes_per_parameter = 0;
  int64_t closed_form = 0;   ///< bytes
  int64_t bytes = 0;         ///< that this rank's program holds of it
  std::string difference{};  ///< why the two differ; "" where they do not
};

struct PlacementSummary {
  int64_t parameters = 0;  ///< of the units that the rank has states of
  int64_t padded = 0;      ///< of all units' flat vectors, so that every cut is a whole number of grains
  std::vector<StateShare> states{};
  int64_t closed_form() const;
  int64_t bytes() const;
};

/// Of a program with goal train. The secondary copy and the gradients are counted whole, as at the step's fullest.
PlacementSummary summarise_placement(const Request& request, const Program& program);

/// What one rank sends in a step.
struct TrafficSplit {
  Traffic step;         ///< in all = once + micro_batches * micro_batch
  Traffic micro_batch;  ///< what one more micro-batch would add, but for the loss's eight bytes in one message
  Traffic once;         ///< whatever the number of micro-batches
};

/// Of a program with goal train; builds one of two micro-batches where the job has just one.
TrafficSplit split_traffic(const Request& request, const Program& program, const device::Planner& planner);

}  // namespace strata::step
