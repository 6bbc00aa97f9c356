#include "step/summary.h"

#include <cmath>

#include "core/error.h"
#include "job/batch.h"
#include "job/placement.h"
#include "model/unit.h"
#include "ops/op.h"
#include "step/build.h"

namespace strata::step {

int64_t PlacementSummary::closed_form() const {
  int64_t sum = 0;
  for (const StateShare& state : states) sum += state.closed_form;
  return sum;
}

int64_t PlacementSummary::bytes() const {
  int64_t sum = 0;
  for (const StateShare& state : states) sum += state.bytes;
  return sum;
}

PlacementSummary summarise_placement(const Request& request, const Program& program) {
  STRATA_CHECK(program.goal == Goal::train);
  const job::Job& job = request.job;
  const job::Sharding reach = job::resolve_placement(job, program.level_names);
  PlacementSummary summary;
  for (const model::Unit& unit : model::units(job.model)) {
    const UnitLayout& layout = program.units[static_cast<size_t>(unit.index)];
    if (!layout.here) continue;
    summary.padded += layout.elements;
    for (const model::Parameter& p : unit.parameters)
      summary.parameters += p.shape.elements() / p.shape[0] * p.true_rows;
  }

  const auto held = [&](BufferKind kind) {
    int64_t bytes = 0;
    for (const Buffer& buffer : program.buffers)
      if (buffer.kind == kind && buffer.within < 0) bytes += buffer.bytes;
    return bytes;
  };
  const auto add = [&](const char* name, BufferKind kind, int levels, double per_parameter, const char* difference) {
    StateShare state{.state = name,
                     .reach = levels,
                     .ranks = layout::shards(program.widths, levels),
                     .bytes_per_parameter = per_parameter};
    state.closed_form = std::llround(static_cast<double>(summary.padded / state.ranks) * per_parameter);
    state.bytes = held(kind);
    if (state.bytes == 0) return;
    if (state.bytes != state.closed_form) state.difference = difference;
    summary.states.push_back(std::move(state));
  };
  const auto compute = static_cast<double>(size_of(program.compute));
  const auto single = static_cast<double>(size_of(DType::f32));
  const int64_t block = job.optimizer.moment_block();
  add("weights", BufferKind::weights, reach.weights, compute, "units of at most placement.resident parameters: whole");
  add("secondary", BufferKind::secondary, reach.secondary, compute, "units that are whole anyway have none");
  add("gradients", BufferKind::gradients, reach.gradients, single, "the tied table: two whole accumulators");
  add("master", BufferKind::master, reach.optimizer, single, "units whose fp32 weights are on every rank have none");
  add("optimizer", BufferKind::moments, reach.optimizer,
      block == 0 ? 2 * single : 2 * (1 + single / static_cast<double>(block)), "");
  if (const int64_t bytes = held(BufferKind::feedback); bytes > 0)
    summary.states.push_back({.state = "feedback",
                              .bytes = bytes,
                              .difference = "errors of the outermost hop's lossy reductions, made up for in the next"});
  return summary;
}

TrafficSplit split_traffic(const Request& request, const Program& program, const device::Planner& planner) {
  STRATA_CHECK(program.goal == Goal::train);
  TrafficSplit split{.step = traffic(program), .micro_batch = {}, .once = {}};
  // The first micro-batch may fill a secondary copy; any later one sends what one more would.
  if (split.step.entries().empty()) return split;
  if (program.micro_batches > 1) {
    split.micro_batch = traffic(program, program.micro_batches - 1);
  } else {
    Request two = request;
    two.job.batch.global *= 2;
    split.micro_batch = traffic(build(two, Goal::train, planner), 1);
  }
  split.once = split.step;
  split.once.add(split.micro_batch, -program.micro_batches);
  return split;
}

}  // namespace strata::step
