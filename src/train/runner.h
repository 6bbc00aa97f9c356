#pragma once
// A job's model on a device, ready to step: programs, one arena for all of them, executors, parameters by name. The loop,
// the verifier and the benchmark are all built on it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/hf.h"
#include "comm/transport.h"
#include "core/allocations.h"
#include "device/device.h"
#include "execute/executor.h"
#include "job/job.h"
#include "step/build.h"

namespace strata::train {

/// What step `step` (from 0) of a job is told when `counted` tokens of its global batch count. `updates`: those made
/// before; fewer than `step` where some were skipped.
ops::StepInputs step_inputs(const job::Job& job, int64_t step, int64_t updates, int64_t counted, double learning_rate,
                            double loss_scale = 1);

class Runner {
 public:
  struct Options {
    bool train = true, evaluate = false;
    bool inspect = false;  ///< step::Request::inspect
  };

  /// Builds this rank's programs and kernels and allocates the arena. The device and the transport outlive it. Without a
  /// transport it is the only rank there is.
  Runner(const job::Job& job, device::Device& device, Options options, const execute::Peers& peers = {});

  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }
  /// Ranks that share out each micro-batch's sequences, and this one's number among them.
  int64_t data_ranks() const;
  int64_t data_rank() const;
  /// Whether this rank is the one, of those that see the same sequences, that speaks for them.
  bool counts() const;
  /// Null if this is the only rank.
  comm::Control* control() { return control_ ? &*control_ : nullptr; }

  const std::vector<model::Unit>& units() const { return units_; }
  const step::Program& program(step::Goal goal) const;
  execute::Executor& executor(step::Goal goal);
  int64_t planned_bytes() const { return planned_bytes_; }

  /// Weights from the seed; moments zero.
  void initialise(uint64_t seed);
  /// Weights from a source of parameters; moments zero.
  void load(const checkpoint::ParameterSource& source);
  /// Current weights, to be written somewhere. With several ranks all call this; on rank 0 it calls `use` with a source that
  /// fetches from the others, which serve it until `use` returns.
  void with_weights(const std::function<void(const checkpoint::ParameterSource&)>& use);
  /// One parameter's values, or with `role` gradient its gradient (of an inspected program), on rank 0; elsewhere `out` may be
  /// empty. With several ranks all call this with the same parameters in the same order.
  void collect(const model::Unit& unit, const model::Parameter& parameter, ops::Role role, std::span<float> out);
  /// What has been sent since construction, by this rank.
  step::Traffic sent() const;

  /// Fills one micro-batch of a goal's program. `samples` holds micro x (sequence + 1) token ids: each row's first `sequence`
  /// are inputs, its last `sequence` targets (negative: does not count, and reads as id 0). `first_sequence` is the row number, in the whole run,
  /// of the first. `document_starts` holds micro x sequence positions (ops::Role::document_starts), for jobs whose attention
  /// stays inside documents. Returns how many targets count.
  int64_t fill(step::Goal goal, int micro_batch, std::span<const int32_t> samples, int64_t first_sequence,
               std::span<const int32_t> document_starts = {});

  struct StepOutcome {
    double loss_sum = 0;  ///< over all tokens that count
    ops::StepResults results;
    allocations::Counts allocations;
  };
  /// One update with the micro-batches filled before.
  StepOutcome train_step(const ops::StepInputs& inputs);
  /// Sum of the losses of the micro-batches filled before, no update.
  double evaluate();

 private:
  struct Goal {
    step::Program program;
    std::unique_ptr<execute::Executor> executor;
  };
  Goal& goal(step::Goal goal);
  const step::Program& any_program() const { return (train_ ? train_ : evaluate_)->program; }
  void add_goal(step::Goal goal, const step::Request& request);

  job::Job job_;
  device::Device& device_;
  execute::Peers peers_;
  std::optional<comm::Control> control_;
  int64_t rank_ = 0, ranks_ = 1;
  std::vector<model::Unit> units_;
  int64_t planned_bytes_ = 0;
  device::Memory arena_;  // outlives the executors: their transfers may be under way when an error ends a step
  std::optional<Goal> train_, evaluate_;
  std::vector<int32_t> inputs_, targets_;
  std::vector<int64_t> ids_;
};

}  // namespace strata::train
