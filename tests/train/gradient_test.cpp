// Gradients of model shapes for which there are no reference numbers, against differences of the loss itself.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/random.h"
#include "execute/model_state.h"
#include "step/small_job.h"
#include "train/runner.h"

namespace strata::train {
namespace {

struct Shape {
  const char* name;
  std::function<job::Job()> job;
};

job::Job changed(model::Family family, const std::function<void(job::Job&)>& change) {
  job::Job job = step::small_job(family);
  job.model.layers = 2;
  change(job);
  return job;
}

using F = model::Family;
const std::vector<Shape> shapes = {
    {"gpt2_untied", [] { return changed(F::gpt2, [](job::Job& j) { j.model.tied = false; }); }},
    {"gpt2_dropout", [] { return changed(F::gpt2, [](job::Job& j) { j.model.dropout = 0.2; }); }},
    {"gpt2_exact_gelu",
     [] { return changed(F::gpt2, [](job::Job& j) { j.model.activation = model::Activation::gelu_exact; }); }},
    {"neox_sequential", [] { return changed(F::gpt_neox, [](job::Job& j) { j.model.parallel_residual = false; }); }},
    {"neox_full_rotary", [] { return changed(F::gpt_neox, [](job::Job& j) { j.model.rotary_fraction = 1; }); }},
    {"neox_no_bias", [] { return changed(F::gpt_neox, [](job::Job& j) { j.model.attention_bias = false; }); }},
    {"neox_tied", [] { return changed(F::gpt_neox, [](job::Job& j) { j.model.tied = true; }); }},
    {"llama_tied_one_kv_head",
     [] { return changed(F::llama, [](job::Job& j) { j.model.tied = true, j.model.kv_heads = 1; }); }},
    {"llama_scaled_rope",
     [] {
       return changed(F::llama, [](job::Job& j) {
         j.model.rope_scaling = model::RopeScaling{.factor = 4, .original_sequence = 16};
       });
     }},
    {"llama_wide_heads_odd_sizes",
     [] {
       return changed(F::llama, [](job::Job& j) {
         j.model.heads = 5, j.model.kv_heads = 5, j.model.head_dim = 12, j.model.ffn = 77, j.model.vocab = 131;
         j.batch = {.global = 6, .micro = 3, .sequence = 13};
       });
     }},
};

class Differences : public testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(Shapes, Differences, testing::ValuesIn(shapes),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_P(Differences, OfTheLossAlongRandomDirectionsAreTheGradient) {
  const job::Job job = GetParam().job();
  const auto device = device::make_cpu(1);
  Runner runner(job, *device, {.train = true, .inspect = true});
  const auto tokens_of = [&](int m) {
    std::vector<int32_t> tokens;
    for (uint64_t i = 0; i < static_cast<uint64_t>(job.batch.micro * (job.batch.sequence + 1)); ++i)
      tokens.push_back(
          static_cast<int32_t>(philox(3, i, static_cast<uint64_t>(m))[0] % static_cast<uint64_t>(job.model.vocab)));
    return tokens;
  };
  const int micro_batches = static_cast<int>(job.batch.global / job.batch.micro);
  // Larger weights than training begins with, so that every part of the model bends the loss.
  const auto weights = [&](double along, uint64_t direction) {
    return [=](const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) {
      execute::initial_values(unit, parameter, 1, out);
      const int64_t real = parameter.true_rows * (parameter.shape.elements() / parameter.shape[0]);
      const uint64_t base = random_key(7, unit.name + parameter.name),
                     key = random_key(direction, unit.name + parameter.name);
      for (int64_t i = 0; i < real; ++i)
        out[static_cast<size_t>(i)] += static_cast<float>(0.1 * normal(base, static_cast<uint64_t>(i)) +
                                                          along * normal(key, static_cast<uint64_t>(i)));
    };
  };
  const auto step = [&](double along, uint64_t direction) {
    runner.load(weights(along, direction));
    int64_t counted = 0;
    for (int m = 0; m < micro_batches; ++m)
      counted += runner.fill(step::Goal::train, m, tokens_of(m), m * job.batch.micro);
    ops::StepInputs inputs;
    inputs.grad_scale = 1.0f / static_cast<float>(counted);
    inputs.seed = 11;
    return runner.train_step(inputs).loss_sum / static_cast<double>(counted);
  };

  for (uint64_t direction : {100u, 101u, 102u}) {
    step(0, direction);
    double along = 0;
    for (const model::Unit& unit : runner.units())
      for (const model::Parameter& parameter : unit.parameters) {
        std::vector<float> gradient(static_cast<size_t>(parameter.shape.elements()));
        runner.collect(unit, parameter, ops::Role::gradient, gradient);
        const uint64_t key = random_key(direction, unit.name + parameter.name);
        const int64_t real = parameter.true_rows * (parameter.shape.elements() / parameter.shape[0]);
        for (int64_t i = 0; i < real; ++i)
          along += static_cast<double>(gradient[static_cast<size_t>(i)]) * normal(key, static_cast<uint64_t>(i));
        for (size_t i = static_cast<size_t>(real); i < gradient.size(); ++i)
          ASSERT_EQ(gradient[i], 0) << unit.name << parameter.name;
      }
    constexpr double h = 1e-4;
    const double difference = (step(h, direction) - step(-h, direction)) / (2 * h);
    EXPECT_NEAR(difference, along, 5e-3 * std::abs(along) + 5e-3);
  }
}

}  // namespace
}  // namespace strata::train
