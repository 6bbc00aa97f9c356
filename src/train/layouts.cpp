#include "train/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "comm/local.h"
#include "core/error.h"
#include "core/random.h"
#include "job/placement.h"
#include "job/stages.h"
#include "train/runner.h"
#include "train/verify.h"

namespace strata::train {

namespace {

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> weights;  ///< by parameter
  std::vector<std::string> names;
};

Trained train(const job::Job& job, int64_t ranks, int steps) {
  Trained trained;
  comm::on_local_ranks(ranks, [&](comm::Transport& transport) {
    const auto device = device::make_cpu(1);
    execute::Peers peers;
    if (ranks > 1) peers = {.transport = &transport, .timeout = 120};
    Runner runner(job, *device, {.train = true}, peers);
    runner.initialise(job.run.seed);
    std::vector<int32_t> tokens(static_cast<size_t>(job.batch.micro * (job.batch.sequence + 1)));
    for (int s = 0; s < steps; ++s) {
      for (int m = 0; m < runner.program(step::Goal::train).micro_batches; ++m) {
        const int64_t first = s * job.batch.global + (m * runner.data_ranks() + runner.data_rank()) * job.batch.micro;
        const size_t width = static_cast<size_t>(job.batch.sequence + 1);
        for (size_t i = 0; i < tokens.size(); ++i)
          tokens[i] = static_cast<int32_t>(philox(static_cast<uint64_t>(first) + i / width, i % width)[0] %
                                           static_cast<uint32_t>(job.model.vocab));
        runner.fill(step::Goal::train, m, tokens, first);
      }
      const auto outcome =
          runner.train_step(step_inputs(job, s, s, job.batch.global * job.batch.sequence, job.optimizer.lr));
      if (runner.rank() != 0) continue;
      trained.losses.push_back(outcome.loss_sum);
      trained.norms.push_back(outcome.results.grad_norm);
    }
    for (const model::Unit& unit : runner.units())
      for (const model::Parameter& parameter : unit.parameters) {
        std::vector<float> values;
        if (runner.rank() == 0) values.resize(static_cast<size_t>(parameter.shape.elements()));
        runner.collect(unit, parameter, ops::Role::parameter, values);
        if (runner.rank() != 0) continue;
        trained.weights.push_back(std::move(values));
        trained.names.push_back(unit.name + "." + parameter.name);
      }
  });
  return trained;
}

void compare(const Trained& found, const Trained& expected, LayoutRow& row) {
  const auto differs = [&](std::string where) {
    if (row.first.empty()) row.first = std::move(where);
  };
  for (size_t s = 0; s < found.losses.size(); ++s) {
    const double deviation = std::abs(found.losses[s] - expected.losses[s]) / std::abs(expected.losses[s]);
    if (!(deviation <= row.deviation)) row.deviation = deviation;
    if (found.losses[s] != expected.losses[s]) differs(fmt::format("loss of step {}", s + 1));
    if (found.norms[s] != expected.norms[s]) differs(fmt::format("gradient norm of step {}", s + 1));
  }
  for (size_t p = 0; p < found.weights.size(); ++p)
    if (found.weights[p] != expected.weights[p]) differs(found.names[p]);
  row.same = row.first.empty();
}

class Layouts {
 public:
  Layouts(const job::Job& job, const LayoutsOn& on, const std::function<void(const LayoutRow&)>& tell)
      : base_(job), on_(on), tell_(tell) {
    base_.placement = {};
    for (job::WireChoice& wire : base_.placement.wires) wire.everywhere = job::Wire::full;
    base_.schedule.layout.clear();
    base_.run.machine.clear();
    base_.mesh = {};
  }

  std::vector<LayoutRow> run() {
    for (const int64_t micro_batches : on_.micro_batches)
      for (int64_t stages = 1; stages <= on_.ranks; ++stages) {
        if (on_.ranks % stages != 0) continue;
        for (const std::string& preset : job::placement_presets()) depth(preset, stages, micro_batches);
      }
    return std::move(rows_);
  }

 private:
  job::Job layout(const std::string& preset, int64_t data, int64_t stages, int64_t micro_batches) const {
    job::Job job = base_;
    job.placement.preset = preset;
    if (job::takes_level(preset)) job.placement.level = "node";
    job.mesh.pipeline = stages;
    job.mesh.levels = tree_of(data, stages);
    job.batch.micro = 1;
    job.batch.global = data * micro_batches;
    return job;
  }

  /// One stage of `data` ranks under a preset: trained once.
  const Trained& flat(const std::string& preset, int64_t data, int64_t micro_batches) {
    const auto [at, fresh] = flat_.try_emplace({preset, data, micro_batches});
    if (fresh) at->second = train(layout(preset, data, 1, micro_batches), data, on_.steps);
    return at->second;
  }

  void add(const std::string& name, const std::string& against, bool bitwise, const Trained& found,
           const Trained& expected) {
    LayoutRow row{.layout = name, .against = against, .bitwise = bitwise, .bound = 1e-5, .first = {}};
    compare(found, expected, row);
    rows_.push_back(row);
    tell_(row);
  }

  void depth(const std::string& preset, int64_t stages, int64_t micro_batches) {
    const int64_t data = on_.ranks / stages;
    const std::string batches = fmt::format("{} micro-batch{}", micro_batches, micro_batches == 1 ? "" : "es");
    const Trained& one = flat(preset, data, micro_batches);
    if (stages == 1) {
      const std::string name = fmt::format("{}, {} ranks, {}", preset, data, batches);
      if (preset != "ddp")
        add(name, fmt::format("ddp, {} ranks, {}", data, batches), micro_batches == 1, one,
            flat("ddp", data, micro_batches));
      const auto changed = [&](const std::string& what, const auto& change) {
        job::Job job = layout(preset, data, 1, micro_batches);
        change(job.schedule);
        add(name + ", " + what, name, true, train(job, data, on_.steps), one);
      };
      changed("recompute full", [](job::Schedule& s) { s.recompute = job::Recompute::full; });
      changed("recompute selective, prefetch 0, overlap 0", [](job::Schedule& s) {
        s.recompute = job::Recompute::selective;
        s.prefetch = s.overlap = 0;
      });
      return;
    }
    for (const job::Pipeline schedule : {job::Pipeline::gpipe, job::Pipeline::one_f_one_b, job::Pipeline::interleaved,
                                         job::Pipeline::zb_h1, job::Pipeline::zb_v}) {
      job::Job job = layout(preset, data, stages, micro_batches);
      job.schedule.pipeline = schedule;
      if (stages * job::chunks_a_stage(job) > job.model.layers + 2) continue;
      add(fmt::format("{}, {} stages of {}, {} ranks each, {}", preset, stages, job::name_of(schedule), data, batches),
          fmt::format("{}, {} ranks, {}", preset, data, batches), true, train(job, on_.ranks, on_.steps), one);
    }
  }

  job::Job base_;
  const LayoutsOn& on_;
  const std::function<void(const LayoutRow&)>& tell_;
  std::vector<LayoutRow> rows_;
  std::map<std::tuple<std::string, int64_t, int64_t>, Trained> flat_;
};

}  // namespace

std::vector<LayoutRow> verify_layouts(const job::Job& job, const LayoutsOn& on,
                                      const std::function<void(const LayoutRow&)>& tell) {
  if (job.precision.compute != DType::f32)
    throw input_error("precision.compute = {}: layouts give the same bits in fp32; give --set precision.compute=fp32",
                      job::precision_name(job.precision.compute));
  return Layouts(job, on, tell).run();
}

}  // namespace strata::train
