#include "train/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/hf.h"
#include "comm/local.h"
#include "core/error.h"
#include "execute/model_state.h"
#include "job/stages.h"
#include "model/hf_names.h"
#include "train/runner.h"

namespace strata::train {

namespace {

/// What may differ from a reference in fp32: of logits and losses absolute, of gradients relative to each tensor's largest
/// value. fp32's bounds allow for another order of sums; those of 16 bits for a few roundings of a value (half a unit in
/// the last place is up to 2^-8 of it in bf16, 2^-11 in fp16) between an input and a result, of which losses are means.
struct Bounds {
  double logits, loss, gradient, norm, training, training_norms;
};

Bounds bounds_of(DType compute) {
  switch (compute) {
    case DType::bf16: return {2e-2, 5e-4, 5e-2, 5e-3, 3e-3, 2e-2};
    case DType::f16: return {3e-3, 1e-4, 1e-2, 1e-3, 1e-3, 3e-3};
    default: return {1e-5, 1e-6, 1e-4, 1e-5, 2e-5, 1e-4};
  }
}

/// fp16's gradients are computed times this.
double loss_scale_of(const job::Job& job) { return job.precision.compute == DType::f16 ? 4096 : 1; }

double largest(std::span<const float> values) {
  double most = 0;
  for (float v : values) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

/// NaN anywhere gives NaN, which no bound admits.
double largest_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= most)) most = difference;
    if (std::isnan(most)) return most;
  }
  return most;
}

/// reference.safetensors, its shapes checked against each other and the model.
struct Reference {
  files::Safetensors file;
  int64_t steps, batch, length;
  std::vector<int32_t> tokens;
  std::vector<double> losses, norms;
  std::vector<float> logits;
  double loss, norm;

  Reference(const std::filesystem::path& path, const model::Config& config)
      : file(files::Safetensors::open_file(path)) {
    const files::StoredTensor& t = file.at("tokens");
    if (t.shape.size() != 3 || t.shape[0] < 1 || t.shape[1] < 1 || t.shape[2] < 2)
      throw input_error("{}: tokens has shape {}, expected [steps + 1, batch, length + 1]", t.file,
                        files::shape_text(t.shape));
    steps = t.shape[0] - 1;
    batch = t.shape[1];
    length = t.shape[2] - 1;
    if (length > config.sequence)
      throw input_error("{}: sequences of {} tokens, the model's longest is {}", t.file, length, config.sequence);
    tokens = t.i32();
    for (int32_t id : tokens)
      if (id < 0 || id >= config.vocab)
        throw input_error("{}: token id {} is outside the vocabulary of {}", t.file, id, config.vocab);
    logits = expect("logits", {batch, length, config.vocab}).f32();
    loss = static_cast<double>(expect("loss", {1}).f32().front());
    norm = static_cast<double>(expect("grad_norm", {1}).f32().front());
    losses = expect("train_losses", {steps}).f64();
    norms = expect("train_grad_norms", {steps}).f64();
  }

  const files::StoredTensor& expect(std::string_view name, const std::vector<int64_t>& shape) const {
    const files::StoredTensor& tensor = file.at(name);
    if (tensor.shape != shape)
      throw input_error("{}: {} has shape {}, expected {}", tensor.file, name, files::shape_text(tensor.shape),
                        files::shape_text(shape));
    return tensor;
  }

  std::span<const int32_t> samples(int64_t step) const {
    const auto size = static_cast<size_t>(batch * (length + 1));
    return std::span(tokens).subspan(static_cast<size_t>(step) * size, size);
  }
};

/// Everything that must not depend on what is kept and what is made again.
struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> gradients, weights;  ///< by unit and parameter; gradients of batch 0
  double loss = 0, norm = 0;
  bool operator==(const Trained&) const = default;
};

void each_parameter(const Runner& runner, const auto& call) {
  for (const model::Unit& unit : runner.units())
    for (const model::Parameter& parameter : unit.parameters) call(unit, parameter);
}

/// One rank, and what it computes with.
struct Rank {
  device::Device& device;
  execute::Peers peers;
  int64_t rank = 0;
};

/// Calls `work` for each rank, on a thread of its own where there are several.
void on_each_rank(const VerifyOn& on, const std::function<void(const Rank&)>& work) {
  if (on.ranks == 1) {
    const auto device = on.make_device(on.threads);
    return work({*device, {}, 0});
  }
  comm::on_local_ranks(on.ranks, [&](comm::Transport& transport) {
    const auto device = on.make_device(on.threads);
    work({*device, {.transport = &transport, .timeout = 120}, transport.rank()});
  });
}

/// A rank's rows of a batch; those beyond the reference's do not count.
std::vector<int32_t> rows_of(const Reference& reference, int64_t step, int64_t rank, int64_t micro) {
  const auto width = static_cast<size_t>(reference.length + 1);
  std::vector<int32_t> rows(static_cast<size_t>(micro) * width, -1);
  const std::span<const int32_t> all = reference.samples(step);
  const auto begin = std::min(all.size(), static_cast<size_t>(rank * micro) * width);
  const std::span<const int32_t> mine = all.subspan(begin, std::min(rows.size(), all.size() - begin));
  std::copy(mine.begin(), mine.end(), rows.begin());
  return rows;
}

Trained run_training(const job::Job& job, const VerifyOn& on, const Reference& reference,
                     const checkpoint::ParameterSource& source) {
  Trained trained;
  on_each_rank(on, [&](const Rank& here) {
    Runner runner(job, here.device, {.train = true, .inspect = true}, here.peers);
    runner.load(source);
    const auto keep = [&](ops::Role role, std::vector<std::vector<float>>& into) {
      each_parameter(runner, [&](const model::Unit& unit, const model::Parameter& parameter) {
        std::vector<float> values;
        if (here.rank == 0) values.resize(static_cast<size_t>(parameter.shape.elements()));
        runner.collect(unit, parameter, role, values);
        if (here.rank == 0) into.push_back(std::move(values));
      });
    };
    const int64_t counted = reference.batch * reference.length;
    const auto step = [&](int64_t s, int64_t updates, double rate) {
      for (int m = 0; m < runner.program(step::Goal::train).micro_batches; ++m) {
        const int64_t place = m * runner.data_ranks() + runner.data_rank();
        runner.fill(step::Goal::train, m, rows_of(reference, s, place, job.batch.micro),
                    s * job.batch.global + place * job.batch.micro);
      }
      return runner.train_step(step_inputs(job, updates, updates, counted, rate, loss_scale_of(job)));
    };
    // Batch 0: one step at a rate of zero, then everything anew.
    const Runner::StepOutcome first = step(0, 0, 0);
    if (here.rank == 0) {
      trained.loss = first.loss_sum / static_cast<double>(counted);
      trained.norm = first.results.grad_norm;
    }
    keep(ops::Role::gradient, trained.gradients);
    runner.load(source);
    for (int64_t s = 0; s < reference.steps; ++s) {
      const Runner::StepOutcome outcome = step(s + 1, s, job.optimizer.lr);
      if (here.rank != 0) continue;
      trained.losses.push_back(outcome.loss_sum / static_cast<double>(counted));
      trained.norms.push_back(outcome.results.grad_norm);
    }
    keep(ops::Role::parameter, trained.weights);
  });
  for (std::vector<float>& gradient : trained.gradients)
    for (float& g : gradient) g /= static_cast<float>(loss_scale_of(job));
  return trained;
}

std::vector<float> evaluate_logits(const job::Job& job, const VerifyOn& on, const Reference& reference,
                                   const checkpoint::ParameterSource& source) {
  const int64_t rows = reference.batch * reference.length, padded = job.model.padded_vocab(), vocab = job.model.vocab;
  std::vector<float> result(static_cast<size_t>(rows * vocab));
  on_each_rank(on, [&](const Rank& here) {
    Runner runner(job, here.device, {.train = false, .evaluate = true, .inspect = true}, here.peers);
    runner.load(source);
    const step::Program& program = runner.program(step::Goal::evaluate);
    const auto place_of = [&](int m) { return m * runner.data_ranks() + runner.data_rank(); };
    for (int m = 0; m < program.micro_batches; ++m)
      runner.fill(step::Goal::evaluate, m, rows_of(reference, 0, place_of(m), job.batch.micro),
                  place_of(m) * job.batch.micro);
    runner.evaluate();
    const int64_t mine = job.batch.micro * reference.length;
    std::vector<float> all(static_cast<size_t>(mine * padded));
    for (int m = 0; program.has(ops::Role::logits) && m < program.micro_batches; ++m) {
      const int64_t first = place_of(m) * mine;
      execute::read_floats(runner.executor(step::Goal::evaluate), ops::Role::logits, -1, m, job.precision.compute, 0,
                           all);
      for (int64_t row = 0; row < std::min(mine, rows - first); ++row) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * padded);
        std::copy(begin, begin + static_cast<std::ptrdiff_t>(vocab),
                  result.begin() + static_cast<std::ptrdiff_t>((first + row) * vocab));
      }
    }
  });
  return result;
}

double largest_relative(std::span<const double> found, std::span<const double> expected) {
  double most = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double deviation = std::abs(found[i] - expected[i]) / std::max(std::abs(expected[i]), 1e-30);
    if (!(deviation <= most)) most = deviation;
    if (std::isnan(most)) return most;
  }
  return most;
}

double largest_absolute(std::span<const double> found, std::span<const double> expected) {
  double most = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double deviation = std::abs(found[i] - expected[i]);
    if (!(deviation <= most)) most = deviation;
    if (std::isnan(most)) return most;
  }
  return most;
}

}  // namespace

std::vector<machine::Level> tree_of(int64_t data, int64_t stages) {
  const auto names = machine::usual_level_names();
  const int64_t package = data % 2 == 0 ? 2 : data, rest = data / package, system = rest % 2 == 0 && rest > 2 ? 2 : 1;
  return {{names[0], package}, {names[1], rest / system}, {names[2], system * stages}};
}

bool VerifyReport::passed() const {
  return std::all_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.passed(); });
}

VerifyReport verify_model(const std::filesystem::path& folder, const VerifyOn& on) {
  const DType compute = on.compute;
  const checkpoint::HfFolder hf(folder);
  const Reference reference(folder / "reference.safetensors", hf.config());
  const checkpoint::ParameterSource source = [&](const model::Unit& unit, const model::Parameter& parameter,
                                                 std::span<float> out) { hf.read(unit, parameter, out); };
  job::Job job;
  job.model = hf.config();
  job.model.dropout = 0;  // reference numbers are of the model as it computes, nothing dropped
  if (on.pipeline < 1 || on.ranks % on.pipeline != 0)
    throw input_error("{} ranks do not share out over {} pipeline stages", on.ranks, on.pipeline);
  const int64_t data = on.ranks / on.pipeline, each = divide_up(reference.batch, data);
  job.batch = {.global = each * data, .micro = on.pipeline > 1 ? 1 : each, .sequence = reference.length};
  job.mesh.levels = tree_of(data, on.pipeline);
  job.mesh.pipeline = on.pipeline;
  job.schedule.pipeline = on.schedule;
  static_cast<void>(job::chunk_units(job));
  job.placement.preset = on.placement;
  for (job::WireChoice& wire : job.placement.wires) wire.everywhere = job::Wire::full;
  job.optimizer.lr = 1e-3;
  job.optimizer.beta1 = 0.9;
  job.optimizer.beta2 = 0.95;
  job.optimizer.epsilon = 1e-8;
  job.optimizer.weight_decay = 0.1;
  job.optimizer.weight_decay_on = job::DecayOn::all;
  job.optimizer.clip = 1.0;
  job.precision.compute = compute;
  job.run.threads = on.threads;
  const Bounds bounds = bounds_of(compute);

  VerifyReport report;
  const model::Config& m = job.model;
  report.model = fmt::format("{}, {} layers, hidden {}, {} heads, vocabulary {}", model::name_of(m.family), m.layers,
                             m.hidden, m.heads, m.vocab);
  report.rows.push_back({"logits", "largest difference",
                         largest_difference(evaluate_logits(job, on, reference, source), reference.logits),
                         bounds.logits});

  const Trained trained = run_training(job, on, reference, source);
  report.rows.push_back({"loss", "difference", std::abs(trained.loss - reference.loss), bounds.loss});
  size_t index = 0;
  for (const model::Unit& unit : model::units(m))
    for (const model::Parameter& parameter : unit.parameters) {
      const std::vector<float>& gradient = trained.gradients[index++];
      for (const model::HfSlice& slice : model::hf_slices(m, unit, parameter)) {
        const std::vector<int64_t> shape(slice.shape.extent.begin(), slice.shape.extent.begin() + slice.shape.rank);
        const std::vector<float> expected = reference.expect("grad." + slice.name, shape).f32();
        std::vector<float> found(expected.size());
        model::to_hf(m, parameter, slice, gradient, found);
        report.rows.push_back({"gradient " + slice.name, "largest difference / largest value",
                               largest_difference(found, expected) / std::max(largest(expected), 1e-30),
                               bounds.gradient});
      }
    }
  const double norm = reference.norm;
  report.rows.push_back({"gradient norm", "relative difference", std::abs(trained.norm - norm) / norm, bounds.norm});
  report.rows.push_back({fmt::format("losses of {} training steps", reference.steps), "largest difference",
                         largest_absolute(trained.losses, reference.losses), bounds.training});
  report.rows.push_back({fmt::format("gradient norms of {} training steps", reference.steps),
                         "largest relative difference", largest_relative(trained.norms, reference.norms),
                         bounds.training_norms});

  for (job::Recompute recompute : {job::Recompute::selective, job::Recompute::full}) {
    job.schedule.recompute = recompute;
    const bool same = run_training(job, on, reference, source) == trained;
    report.rows.push_back({fmt::format("recompute {} gives the same bits", job::name_of(recompute)),
                           "0 = every loss, norm, gradient and weight bitwise equal", same ? 0.0 : 1.0, 0});
  }
  return report;
}

}  // namespace strata::train
