#include "train/runner.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "execute/model_state.h"
#include "step/check.h"

namespace strata::train {

using ops::Role;

ops::StepInputs step_inputs(const job::Job& job, int64_t step, int64_t updates, int64_t counted, double learning_rate,
                            double loss_scale) {
  ops::StepInputs inputs;
  inputs.grad_scale = static_cast<float>(loss_scale) / static_cast<float>(counted);
  inputs.inverse_loss_scale = static_cast<float>(1 / loss_scale);
  inputs.learning_rate = static_cast<float>(learning_rate);
  inputs.bias1 = static_cast<float>(1 - std::pow(job.optimizer.beta1, static_cast<double>(updates + 1)));
  inputs.bias2 = static_cast<float>(1 - std::pow(job.optimizer.beta2, static_cast<double>(updates + 1)));
  inputs.seed = job.run.seed;
  inputs.step = static_cast<uint64_t>(step);
  return inputs;
}

Runner::Runner(const job::Job& job, device::Device& device, Options options, const execute::Peers& peers)
    : job_(job), device_(device), peers_(peers), units_(model::units(job.model)) {
  if (peers.transport && peers.transport->ranks() > 1) {
    control_.emplace(*peers.transport, peers.timeout);
    rank_ = control_->rank();
    ranks_ = control_->ranks();
  }
  step::Request request{.job = job, .ranks = ranks_, .rank = rank_, .inspect = options.inspect};
  if (options.train) {
    add_goal(step::Goal::train, request);
    request.front_bytes = train_->program.persistent_bytes;
  }
  if (options.evaluate) add_goal(step::Goal::evaluate, request);
  arena_ = device.allocate(planned_bytes_);
  for (std::optional<Goal>* each : {&train_, &evaluate_})
    if (*each)
      (*each)->executor = std::make_unique<execute::Executor>((*each)->program, device, arena_.address(), peers_);
  const auto tokens = static_cast<size_t>(job.batch.micro * job.batch.sequence);
  inputs_.resize(tokens);
  targets_.resize(tokens);
  ids_.resize(static_cast<size_t>(job.batch.micro));
}

void Runner::add_goal(step::Goal which, const step::Request& request) {
  std::optional<Goal>& slot = which == step::Goal::train ? train_ : evaluate_;
  slot.emplace();
  slot->program = step::build(request, which, device_);
  const layout::Mesh& mesh = slot->program.mesh;
  if (rank_ == 0 && mesh.degree(layout::Axis::pipeline) > 1) {
    // For all pipelines: their programs differ in nothing but whom they name.
    std::vector<step::Program> stages;
    for (const int64_t rank : mesh.group(0, layout::Axis::pipeline, 0, mesh.levels())) {
      step::Request other = request;
      other.rank = rank;
      stages.push_back(step::build(other, which, device_));
    }
    step::check_together(stages);
  }
  planned_bytes_ = std::max(planned_bytes_, slot->program.arena_bytes);
}

Runner::Goal& Runner::goal(step::Goal which) {
  std::optional<Goal>& slot = which == step::Goal::train ? train_ : evaluate_;
  STRATA_CHECK(slot.has_value(), "no program for {}", step::name_of(which));
  return *slot;
}

const step::Program& Runner::program(step::Goal which) const { return const_cast<Runner*>(this)->goal(which).program; }
execute::Executor& Runner::executor(step::Goal which) { return *goal(which).executor; }

int64_t Runner::data_ranks() const { return any_program().mesh.degree(layout::Axis::data); }
int64_t Runner::data_rank() const { return any_program().mesh.index(rank_, layout::Axis::data); }
bool Runner::counts() const {
  const layout::Mesh& mesh = any_program().mesh;
  return mesh.index(rank_, layout::Axis::pipeline) == 0 && mesh.index(rank_, layout::Axis::tensor) == 0;
}

void Runner::initialise(uint64_t seed) {
  load([seed](const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) {
    execute::initial_values(unit, parameter, seed, out);
  });
}

void Runner::load(const checkpoint::ParameterSource& source) {
  execute::Executor& executor = *(train_ ? train_ : evaluate_)->executor;  // persistent buffers are common to both
  execute::reset(executor, job_.model);
  std::vector<float> values;
  for (const model::Unit& unit : units_)
    for (const model::Parameter& parameter : unit.parameters) {
      values.resize(static_cast<size_t>(parameter.shape.elements()));
      source(unit, parameter, values);
      execute::write_parameter(executor, unit, parameter, values);
    }
}

void Runner::collect(const model::Unit& unit, const model::Parameter& parameter, Role role, std::span<float> out) {
  const execute::Executor& executor = *(train_ ? train_ : evaluate_)->executor;
  const int64_t begin = parameter.offset, end = begin + parameter.shape.elements();
  std::vector<float> mine;
  for (int64_t keeper = 0; keeper < ranks_; ++keeper) {
    const layout::Cut kept = execute::kept_by(executor.program(), unit.index, keeper);
    const layout::Cut range{std::max(begin, kept.begin),
                            std::min(end, kept.begin + kept.elements) - std::max(begin, kept.begin)};
    if (range.elements <= 0) continue;
    const auto place = [&] {
      return out.subspan(static_cast<size_t>(range.begin - begin), static_cast<size_t>(range.elements));
    };
    constexpr const char* what = "collecting the model on rank 0";
    if (keeper == rank_) {
      mine.resize(static_cast<size_t>(range.elements));
      execute::read_range(executor, unit.index, role, range, mine);
      if (rank_ == 0)
        std::copy(mine.begin(), mine.end(), place().begin());
      else
        control_->send(0, std::as_bytes(std::span(mine)), what);
    } else if (rank_ == 0) {
      control_->receive(keeper, std::as_writable_bytes(place()), what);
    }
  }
}

void Runner::with_weights(const std::function<void(const checkpoint::ParameterSource&)>& use) {
  struct Wanted {
    int32_t unit, parameter;
  };
  constexpr const char* what = "saving the model";
  const auto ask = [&](const Wanted& wanted) {
    for (int64_t peer = 1; peer < ranks_; ++peer) control_->send(peer, std::as_bytes(std::span(&wanted, 1)), what);
  };
  if (rank_ != 0) {
    Wanted wanted;
    while (true) {
      control_->receive(0, std::as_writable_bytes(std::span(&wanted, 1)), what);
      if (wanted.unit < 0) break;
      const model::Unit& unit = units_[static_cast<size_t>(wanted.unit)];
      collect(unit, unit.parameters[static_cast<size_t>(wanted.parameter)], Role::parameter, {});
    }
    if (wanted.parameter != 0) throw run_error("rank {}: rank 0 could not save the model; see its log", rank_);
    return;
  }
  try {
    use([&](const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) {
      ask({unit.index, static_cast<int32_t>(&unit.parameter(parameter.name) - unit.parameters.data())});
      collect(unit, parameter, Role::parameter, out);
    });
  } catch (...) {
    ask({-1, 1});
    throw;
  }
  ask({-1, 0});
}

step::Traffic Runner::sent() const {
  step::Traffic all;
  for (const std::optional<Goal>* each : {&train_, &evaluate_})
    if (*each) all.add((*each)->executor->sent());
  return all;
}

int64_t Runner::fill(step::Goal which, int micro_batch, std::span<const int32_t> samples, int64_t first_sequence,
                     std::span<const int32_t> document_starts) {
  const auto sequence = static_cast<size_t>(job_.batch.sequence), rows = ids_.size();
  STRATA_CHECK(samples.size() == rows * (sequence + 1));
  int64_t counted = 0;
  for (size_t row = 0; row < rows; ++row) {
    const auto sample = samples.subspan(row * (sequence + 1), sequence + 1);
    std::transform(sample.begin(), sample.end() - 1, inputs_.begin() + static_cast<std::ptrdiff_t>(row * sequence),
                   [](int32_t id) { return std::max(id, 0); });
    std::copy(sample.begin() + 1, sample.end(), targets_.begin() + static_cast<std::ptrdiff_t>(row * sequence));
    counted += std::count_if(sample.begin() + 1, sample.end(), [](int32_t t) { return t >= 0; });
    ids_[row] = first_sequence + static_cast<int64_t>(row);
  }
  execute::Executor& executor = *goal(which).executor;
  // Each pipeline stage takes what its units read.
  const auto write = [&](Role role, std::span<const std::byte> bytes) {
    if (executor.program().has(role)) executor.write(role, -1, micro_batch, bytes);
  };
  write(Role::tokens, std::as_bytes(std::span(inputs_)));
  write(Role::targets, std::as_bytes(std::span(targets_)));
  write(Role::sequence_ids, std::as_bytes(std::span(ids_)));
  STRATA_CHECK(job_.data.attention_across_documents || document_starts.size() == inputs_.size());
  write(Role::document_starts, std::as_bytes(document_starts));
  return counted;
}

namespace {

double loss_sum(const execute::Executor& executor) {
  double sum = 0;
  for (int m = 0; m < executor.program().micro_batches; ++m) {
    double loss = 0;
    executor.read(Role::loss, -1, m, std::as_writable_bytes(std::span(&loss, 1)));
    sum += loss;
  }
  return sum;
}

}  // namespace

Runner::StepOutcome Runner::train_step(const ops::StepInputs& inputs) {
  execute::Executor& executor = *goal(step::Goal::train).executor;
  executor.write(Role::step_inputs, -1, -1, std::as_bytes(std::span(&inputs, 1)));
  StepOutcome outcome;
  {
    const allocations::Watch watch;
    // Another each step, the same in every layout.
    const Random4 noise = philox(random_key(inputs.seed, "wires"), inputs.step);
    executor.run(uint64_t{noise[0]} << 32 | noise[1]);
    outcome.allocations = watch.counts();
  }
  executor.read(Role::step_results, -1, -1, std::as_writable_bytes(std::span(&outcome.results, 1)));
  outcome.loss_sum = loss_sum(executor);
  return outcome;
}

double Runner::evaluate() {
  execute::Executor& executor = *goal(step::Goal::evaluate).executor;
  executor.run();
  return loss_sum(executor);
}

}  // namespace strata::train
