#pragma once
// A small job trained on threads as ranks: what layouts are held against each other by.

#include <gtest/gtest.h>

#include <vector>

#include "comm/local.h"
#include "core/random.h"
#include "step/small_job.h"
#include "step/traffic.h"
#include "train/runner.h"

namespace strata::train {

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<float> weights;
  bool operator==(const Outcome&) const = default;
};

inline job::Job small(model::Family family, const std::vector<int64_t>& widths, int64_t micro_batches) {
  job::Job job = step::small_job(family);
  job.model.layers = 2;
  job.mesh.levels.clear();
  const char* names[] = {"package", "node", "system"};
  int64_t ranks = 1;
  for (size_t l = 0; l < widths.size(); ++l) job.mesh.levels.push_back({names[l], widths[l]}), ranks *= widths[l];
  job.batch = {.global = ranks * micro_batches, .micro = 1, .sequence = 24};
  job.optimizer.lr = 1e-2;
  job.optimizer.weight_decay = 0.1;
  return job;
}

/// Trains on threads; checks bytes, memory and allocations on the way.
inline Outcome train(const job::Job& job, int steps) {
  int64_t ranks = 1;
  for (const machine::Level& level : job.mesh.levels) ranks *= level.width;
  Outcome outcome;
  comm::on_local_ranks(ranks, [&](comm::Transport& transport) {
    const auto device = device::make_cpu(1);
    Runner runner(job, *device, {.train = true}, {.transport = &transport, .timeout = 60});
    runner.initialise(7);
    const step::Program& program = runner.program(step::Goal::train);
    const step::Traffic counted = step::traffic(program);
    for (int s = 0; s < steps; ++s) {
      const step::Traffic before = runner.sent();
      for (int m = 0; m < program.micro_batches; ++m) {
        const int64_t sequence =
            s * job.batch.global + (m * runner.data_ranks() + runner.data_rank()) * job.batch.micro;
        std::vector<int32_t> tokens(static_cast<size_t>(job.batch.micro * (job.batch.sequence + 1)));
        for (size_t i = 0; i < tokens.size(); ++i)
          tokens[i] = static_cast<int32_t>(philox(static_cast<uint64_t>(sequence), i)[0] % 211);
        runner.fill(step::Goal::train, m, tokens, sequence);
      }
      const auto result =
          runner.train_step(step_inputs(job, s, s, job.batch.global * job.batch.sequence, job.optimizer.lr));
      step::Traffic expected = before;
      expected.add(counted);
      EXPECT_EQ(runner.sent(), expected) << "bytes sent are not those counted";
      EXPECT_EQ(device->peak_bytes(), runner.planned_bytes());
      if (runner.rank() == 0) {
        outcome.losses.push_back(result.loss_sum);
        outcome.norms.push_back(result.results.grad_norm);
      }
      EXPECT_EQ(result.results.skipped, 0);
    }
    std::vector<float> values;
    for (const model::Unit& unit : runner.units())
      for (const model::Parameter& parameter : unit.parameters) {
        values.resize(static_cast<size_t>(parameter.shape.elements()));
        runner.collect(unit, parameter, ops::Role::parameter, values);
        if (runner.rank() == 0) outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
      }
  });
  return outcome;
}

}  // namespace strata::train
