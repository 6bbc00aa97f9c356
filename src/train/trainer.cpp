#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "checkpoint/hf.h"
#include "core/error.h"
#include "core/process.h"
#include "core/text.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "job/batch.h"
#include "model/forward.h"
#include "optim/schedule.h"
#include "train/runner.h"
#include "train/saver.h"
#include "train/signals.h"
#include "train/team.h"
#include "train/timelines.h"

namespace strata::train {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<data::Source> sources(const std::vector<job::Data::Source>& given) {
  std::vector<data::Source> result;
  for (const job::Data::Source& source : given) result.push_back({source.path, source.weight});
  return result;
}

/// One micro-batch on the host: the same memory for every one.
struct HostBatch {
  std::vector<int32_t> samples, document_starts;
};

/// Fills every micro-batch of a step with this rank's sequences; `first` is the number of the step's first sequence in the
/// whole run. A micro-batch's sequences are shared out rank by rank. Returns tokens that count, over all ranks.
int64_t fill_step(Runner& runner, step::Goal goal, const data::Dataset& dataset, const job::Job& job,
                  int64_t micro_batches, int64_t first, HostBatch& host) {
  const auto length = static_cast<size_t>(job.batch.sequence), micro = static_cast<size_t>(job.batch.micro);
  const bool masked = !job.data.attention_across_documents;
  host.samples.resize(micro * (length + 1));
  host.document_starts.resize(masked ? micro * length : 0);
  int64_t counted = 0;
  for (int64_t m = 0; m < micro_batches; ++m) {
    const int64_t sequence = first + (m * runner.data_ranks() + runner.data_rank()) * job.batch.micro;
    for (size_t i = 0; i < micro; ++i) {
      const auto sample = std::span(host.samples).subspan(i * (length + 1), length + 1);
      if (masked)
        dataset.sample(sequence + static_cast<int64_t>(i), sample,
                       std::span(host.document_starts).subspan(i * length, length));
      else
        dataset.sample(sequence + static_cast<int64_t>(i), sample);
    }
    counted += runner.fill(goal, static_cast<int>(m), host.samples, sequence, host.document_starts);
  }
  // Stages of one pipeline see the same sequences.
  return sum(runner.control(), runner.counts() ? counted : 0, "counting a step's tokens");
}

data::Dataset training_data(const job::Job& job) {
  return {sources(job.data.train), job.batch.sequence,    job.run.seed,
          job.model.vocab,         data::Order::shuffled, {.shares = job.data.split}};
}

data::Dataset validation_data(const job::Job& job, const data::Dataset& training) {
  if (!job.data.split.empty()) return training.share(1, data::Order::sequential);
  return {sources({{job.data.validation, 1.0}}), job.batch.sequence, job.run.seed, job.model.vocab,
          data::Order::sequential};
}

class Validation {
 public:
  Validation(const job::Job& job, const data::Dataset& training)
      : job_(job), dataset_(validation_data(job, training)) {}

  ValidationReport run(Runner& runner, int64_t step) {
    const auto start = Clock::now();
    ValidationReport report{.step = step};
    const int64_t micro_batches = runner.program(step::Goal::evaluate).micro_batches;
    for (int64_t batch = 0; batch < job_.run.validate.batches; ++batch) {
      const int64_t first = batch * job_.batch.global;
      report.tokens += fill_step(runner, step::Goal::evaluate, dataset_, job_, micro_batches, first, host_);
      report.loss += runner.evaluate();
    }
    report.loss /= static_cast<double>(report.tokens);
    report.seconds = since(start);
    return report;
  }

 private:
  const job::Job& job_;
  data::Dataset dataset_;
  HostBatch host_;
};

/// The tokenizer goes with every saved model, so it has to be there, and to fit, before the first step.
void check_tokenizer(const job::Job& job) {
  const std::filesystem::path path = job.data.tokenizer;
  if (path.empty()) return;
  if (path != data::bytes_name && !std::filesystem::exists(path))
    throw input_error("data.tokenizer: {}: no such file", path.string());
  const auto tokenizer = data::load_tokenizer(path);
  if (tokenizer->vocab() > job.model.vocab)
    throw input_error("model.vocab = {}, but data.tokenizer {} has {} ids: set model.vocab to that or more",
                      job.model.vocab, path.string(), tokenizer->vocab());
}

}  // namespace

void check_trainable(const job::Job& job) {
  const auto refuse = [](std::string_view key, std::string_view value, std::string_view instead) {
    throw input_error("{} = {} cannot be trained by this build yet: {}", key, value, instead);
  };
  if (job.mesh.tensor != 1) refuse("mesh.tensor", std::to_string(job.mesh.tensor), "set it to 1");
  if (job.model.attention_dropout != 0)
    refuse("model.attention_dropout", fmt::format("{}", job.model.attention_dropout),
           "there is no dropout inside attention; give --set model.attention_dropout=0 to train without");
  if (job.data.train.empty())
    throw input_error(
        "data.train is missing: name a dataset, e.g. [data] train = [{{ path = \"PREFIX\" }}]; strata data build makes "
        "one");
  const bool validation_share = job.data.split.size() > 1 && job.data.split[1] > 0;
  if (job.run.validate.every > 0 && job.data.validation.empty() && !validation_share)
    throw input_error(
        "run.validate.every = {} but data.validation is missing: name a dataset, give a share of data.split, or set it "
        "to 0",
        job.run.validate.every);
  const auto inside = std::filesystem::path(job.run.save.folder).lexically_normal();
  if (inside.is_relative() && !inside.empty() && *inside.begin() == "..")
    throw input_error("run.save.folder = \"{}\" leads out of run.folder: name a folder inside it, or an absolute path",
                      job.run.save.folder);
  check_tokenizer(job);
}

RunEnd train(const job::Job& job, device::Device& device, std::span<Observer* const> observers, bool replace,
             const execute::Peers& peers) {
  check_trainable(job);
  const bool alone = !peers.transport || peers.transport->ranks() == 1;
  const int64_t rank = alone ? 0 : peers.transport->rank(), ranks = alone ? 1 : peers.transport->ranks();
  std::optional<comm::Control> control;
  if (!alone) {
    control.emplace(*peers.transport, peers.timeout);
    check_same(*control, job);
  }
  comm::Control* const team = control ? &*control : nullptr;
  const auto tell = [&](auto call) {
    for (Observer* observer : observers) call(*observer);
  };
  job::BatchPlan batch;
  std::optional<data::Dataset> opened;
  std::optional<Validation> validation;
  std::optional<Runner> made;
  together(team, "opening the data, making the model", [&] {
    batch = job::resolve_batch(job, ranks);
    opened.emplace(training_data(job));
    if (job.run.validate.every > 0) validation.emplace(job, *opened);
    std::optional<checkpoint::HfFolder> source;
    if (!job.model_from.empty()) source.emplace(job.model_from);
    made.emplace(job, device, Runner::Options{.train = true, .evaluate = validation.has_value()}, peers);
    if (source) {
      made->load([&](const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) {
        source->read(unit, parameter, out);
      });
    } else {
      made->initialise(job.run.seed);
    }
  });
  const data::Dataset& dataset = *opened;
  Runner& runner = *made;

  // Data that does not fit the model shows here, before any file of the run is touched.
  HostBatch host;
  int64_t counted = 0;
  const auto fill = [&](int64_t step) {
    counted = fill_step(runner, step::Goal::train, dataset, job, batch.accumulation, step * batch.global, host);
  };
  fill(0);
  std::optional<Saver> saver;
  together(team, "making the run's folder", [&] {
    if (rank == 0) saver.emplace(job, replace);
  });

  const step::Program& program = runner.program(step::Goal::train);
  // Pipeline stages compute different units: what a rank does in the mean.
  const auto mean = [&](double flops, const char* what) {
    if (!team) return flops;
    const std::vector<double> all = team->gather(flops, what);
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  };
  const double flops = mean(program.flops(), "counting a step's operations");
  const double recompute_flops = mean(program.recompute_flops(), "counting a step's operations");
  const auto tell_start = [&] {
    tell([&](Observer& o) {
      o.on_start({.job = &job,
                  .batch = batch,
                  .folder = job.run.folder,
                  .parameters = model::parameter_count(job.model),
                  .device = device.description(),
                  .planned_bytes = runner.planned_bytes(),
                  .model_flops_per_token = model::train_flops_per_token(job.model, job.batch.sequence),
                  .program_flops = flops,
                  .program_recompute_flops = recompute_flops,
                  .program = &program,
                  .rank = rank,
                  .ranks = ranks});
    });
  };
  // Rank 0 makes what the others write into.
  together(team, "beginning the run", [&] {
    if (rank == 0) tell_start();
  });
  if (rank != 0) tell_start();

  RunEnd end;
  const StopRequest stop;
  const auto start = Clock::now();
  int64_t total_tokens = 0, updates = 0;
  const bool scaled = job.precision.compute == DType::f16;
  optim::LossScale loss_scale = scaled ? optim::LossScale(job.precision.scaling) : optim::LossScale();
  step::Traffic planned;  // by this rank
  const step::Traffic of_a_step = step::traffic(program);
  const step::Traffic of_a_validation =
      validation ? step::traffic(runner.program(step::Goal::evaluate)) : step::Traffic();
  const auto save = [&](int64_t step) {
    runner.with_weights([&](const checkpoint::ParameterSource& weights) { end.saved = saver->save(step, weights); });
    tell([&](Observer& o) { o.on_saved(step, end.saved); });
  };
  for (int64_t step = 0; step < job.run.steps; ++step) {
    const auto step_start = Clock::now();
    if (step > 0) fill(step);
    // The disk fetches the next step's text during this one.
    if (step + 1 < job.run.steps) dataset.will_need((step + 1) * batch.global, batch.global);
    if (counted == 0)
      throw everywhere(input_error("step {}: no token of the batch counts, so there is no loss", step + 1));
    const double rate = optim::learning_rate(job.optimizer.schedule, job.optimizer.lr, updates, job.run.steps);
    const ops::StepInputs inputs = step_inputs(job, step, updates, counted, rate, loss_scale.scale());
    const Runner::StepOutcome outcome = runner.train_step(inputs);
    planned.add(of_a_step);
    total_tokens += batch.global * job.batch.sequence;

    const double loss = outcome.loss_sum / static_cast<double>(counted);
    StepReport report{.step = step + 1,
                      .tokens = batch.global * job.batch.sequence,
                      .total_tokens = total_tokens,
                      .seconds = since(step_start),
                      .loss = loss,
                      .grad_norm = outcome.results.grad_norm,
                      .clip_factor = static_cast<double>(outcome.results.clip_factor),
                      .skipped = outcome.results.skipped != 0,
                      .learning_rate = static_cast<double>(inputs.learning_rate),
                      .loss_scale = loss_scale.scale(),
                      .allocated_bytes = device.peak_bytes(),
                      .resident_bytes = peak_resident_bytes()};
    if (allocations::watching()) {
      report.allocations = outcome.allocations.ours;
      report.library_allocations = outcome.allocations.libraries;
    }
    tell([&](Observer& o) { o.on_step(report); });
    if (std::find(job.run.trace.begin(), job.run.trace.end(), step + 1) != job.run.trace.end()) {
      const TimelineReport timeline = collect_timelines(team, runner.executor(step::Goal::train), step + 1);
      together(team, "writing a step's timeline", [&] {
        if (rank == 0) tell([&](Observer& o) { o.on_timeline(timeline); });
      });
    }
    if (!std::isfinite(loss) || (report.skipped && !scaled))
      throw everywhere(run_error(
          "step {}: the {} is not finite (loss {}, gradient norm {}, learning rate {:.3g}); nothing was saved for this "
          "step. "
          "Lower optimizer.lr, lengthen optimizer.schedule.warmup or set optimizer.clip",
          step + 1, std::isfinite(loss) ? "gradient" : "loss", loss, outcome.results.grad_norm, inputs.learning_rate));
    if (!loss_scale.update(report.skipped)) {
      const bool fixed = job.precision.scaling.fixed > 0;
      throw everywhere(run_error(
          "step {}: gradients overflow at a loss scale of {}, {}, or compute in bf16", step + 1, report.loss_scale,
          fixed ? "which precision.loss_scaling.fixed says: lower it, or leave the scale to be found (0)"
                : "the lowest that precision.loss_scaling allows: the run has diverged. Lower optimizer.lr, "
                  "lengthen optimizer.schedule.warmup"));
    }
    report.skipped ? ++end.skipped : ++updates;
    end.loss = loss;

    end.step = step + 1;
    const bool last = step + 1 == job.run.steps;
    if (last && updates == 0)
      throw everywhere(run_error(
          "none of {} steps changed the model: gradients overflowed in each, down to a loss scale of {}; nothing was "
          "saved. Train longer, or begin with a lower precision.loss_scaling.initial_power",
          job.run.steps, report.loss_scale));
    if (validation && ((step + 1) % job.run.validate.every == 0 || last)) {
      const ValidationReport validated = validation->run(runner, step + 1);
      planned.add(of_a_validation, job.run.validate.batches);
      tell([&](Observer& o) { o.on_validation(validated); });
    }
    // Signals reach ranks at different moments; all stop after the same step.
    end.interrupted = sum(team, stop.received(), "asking who was told to stop") > 0 && !last;
    if (last || end.interrupted || (job.run.save.every > 0 && (step + 1) % job.run.save.every == 0)) save(step + 1);
    if (end.interrupted) break;
  }
  end.seconds = since(start);
  end.sent = sum(team, runner.sent());
  end.planned = sum(team, planned);
  tell([&](Observer& o) { o.on_end(end); });
  return end;
}

}  // namespace strata::train
