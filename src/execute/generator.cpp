#include "execute/generator.h"

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "execute/model_state.h"
#include "step/build.h"

namespace strata::execute {

using ops::Role;

namespace {
/// Prompt tokens taken at once: enough to keep matrix products busy, few enough to keep scratch small.
constexpr int64_t prompt_rows = 64;
}  // namespace

Generator::Generator(const model::Config& config, DType compute, device::Device& device, int threads,
                     const Source& weights)
    : config_(config), logits_(static_cast<size_t>(config.vocab)) {
  step::Request request;
  request.job.model = config;
  request.job.batch = {.global = 1, .micro = 1, .sequence = config.sequence};
  request.job.precision.compute = compute;
  request.job.run.threads = threads;
  request.generate_rows = std::min(prompt_rows, config.sequence);
  many_.program = step::build(request, step::Goal::generate, device);
  request.generate_rows = 1;
  one_.program = step::build(request, step::Goal::generate, device);
  STRATA_CHECK(many_.program.persistent_bytes == one_.program.persistent_bytes);
  arena_ = device.allocate(std::max(many_.program.arena_bytes, one_.program.arena_bytes));
  for (Pass* pass : {&many_, &one_})
    pass->executor = std::make_unique<Executor>(pass->program, device, arena_.address());

  reset(*many_.executor, config);
  std::vector<float> values;
  for (const model::Unit& unit : model::units(config))
    for (const model::Parameter& parameter : unit.parameters) {
      values.resize(static_cast<size_t>(parameter.shape.elements()));
      weights(unit, parameter, values);
      write_parameter(*many_.executor, unit, parameter, values);
    }
}

void Generator::feed(std::span<const int32_t> tokens) {
  if (position_ + static_cast<int64_t>(tokens.size()) > config_.sequence)
    throw input_error("{} tokens are more than the model's longest sequence, {}",
                      position_ + static_cast<int64_t>(tokens.size()), config_.sequence);
  for (int32_t id : tokens)
    if (id < 0 || id >= config_.vocab)
      throw input_error("token id {} is outside the model's vocabulary of {}", id, config_.vocab);
  while (!tokens.empty()) {
    Pass& pass = tokens.size() == 1 ? one_ : many_;
    const auto now = tokens.first(std::min(tokens.size(), static_cast<size_t>(pass.program.sequence)));
    run(pass, now);
    tokens = tokens.subspan(now.size());
  }
}

void Generator::run(Pass& pass, std::span<const int32_t> tokens) {
  // Rows past the prompt's end are computed and thrown away; the cache takes only the real ones.
  padded_.assign(static_cast<size_t>(pass.program.sequence), 0);
  std::copy(tokens.begin(), tokens.end(), padded_.begin());
  ops::StepInputs inputs;
  inputs.position = static_cast<int32_t>(position_);
  inputs.new_tokens = static_cast<int32_t>(tokens.size());
  pass.executor->write(Role::tokens, -1, 0, std::as_bytes(std::span(padded_)));
  pass.executor->write(Role::step_inputs, -1, -1, std::as_bytes(std::span(&inputs, 1)));
  pass.executor->run();
  position_ += static_cast<int64_t>(tokens.size());
  const int64_t row = (static_cast<int64_t>(tokens.size()) - 1) * config_.padded_vocab();
  read_floats(*pass.executor, Role::logits, -1, 0, pass.program.compute, row, logits_);
}

}  // namespace strata::execute
