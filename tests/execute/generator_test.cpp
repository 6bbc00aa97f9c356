// Generation with a cache against evaluation of the whole sequence at once.

#include "execute/generator.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "execute/model_state.h"
#include "step/build.h"
#include "step/small_job.h"

namespace strata::execute {
namespace {

constexpr uint64_t seed = 5;

std::vector<int32_t> some_tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(philox(9, static_cast<uint64_t>(i))[0] % static_cast<uint64_t>(vocab)));
  return tokens;
}

void source(const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) {
  initial_values(unit, parameter, seed, out);
}

/// Logits of every position, from the evaluation program.
std::vector<float> whole(job::Job job, std::span<const int32_t> tokens, device::Device& device) {
  job.batch = {.global = 1, .micro = 1, .sequence = static_cast<int64_t>(tokens.size())};
  const step::Program program = step::build({.job = job, .inspect = true}, step::Goal::evaluate, device);
  const device::Memory arena = device.allocate(program.arena_bytes);
  Executor executor(program, device, arena.address());
  reset(executor, job.model);
  std::vector<float> values;
  for (const model::Unit& unit : model::units(job.model))
    for (const model::Parameter& parameter : unit.parameters) {
      values.resize(static_cast<size_t>(parameter.shape.elements()));
      source(unit, parameter, values);
      write_parameter(executor, unit, parameter, values);
    }
  const std::vector<int32_t> targets(tokens.begin(), tokens.end());
  executor.write(ops::Role::tokens, -1, 0, std::as_bytes(tokens));
  executor.write(ops::Role::targets, -1, 0, std::as_bytes(std::span(targets)));
  executor.run();
  std::vector<float> logits(tokens.size() * static_cast<size_t>(job.model.padded_vocab()));
  executor.read(ops::Role::logits, -1, 0, std::as_writable_bytes(std::span(logits)));
  return logits;
}

class Generation : public testing::TestWithParam<model::Family> {
 protected:
  static job::Job job() {
    job::Job job = step::small_job(GetParam());
    job.model.sequence = 150;  // longer than the prompt rows taken at once
    return job;
  }
  std::unique_ptr<device::Device> device_ = device::make_poison(1);
};

INSTANTIATE_TEST_SUITE_P(Families, Generation,
                         testing::Values(model::Family::gpt2, model::Family::gpt_neox, model::Family::llama),
                         [](const auto& i) { return std::string(model::name_of(i.param)); });

TEST_P(Generation, CacheGivesTheLogitsOfTheWholeSequence) {
  const job::Job job = Generation::job();
  const std::vector<int32_t> tokens = some_tokens(150, job.model.vocab);
  const std::vector<float> expected = whole(job, tokens, *device_);
  Generator generator(job.model, DType::f32, *device_, 1, source);
  const auto check = [&] {
    const size_t row = static_cast<size_t>(generator.position() - 1) * static_cast<size_t>(job.model.padded_vocab());
    for (size_t i = 0; i < generator.logits().size(); ++i)
      ASSERT_NEAR(generator.logits()[i], expected[row + i], 2e-6) << "position " << generator.position();
  };
  for (int round = 0; round < 2; ++round) {  // clear() forgets the first round
    generator.clear();
    size_t fed = 0;
    for (size_t count : {1u, 7u, 70u, 1u, 1u, 64u, 6u}) {
      generator.feed(std::span(tokens).subspan(fed, count));
      fed += count;
      check();
    }
    EXPECT_EQ(generator.position(), 150);
  }
}

TEST_P(Generation, RefusesTooManyTokensAndForeignIds) {
  const job::Job job = Generation::job();
  Generator generator(job.model, DType::f32, *device_, 1, source);
  EXPECT_THROW(generator.feed(some_tokens(151, job.model.vocab)), Error);
  const std::vector<int32_t> foreign = {static_cast<int32_t>(job.model.vocab)}, negative = {-1};
  EXPECT_THROW(generator.feed(foreign), Error);
  EXPECT_THROW(generator.feed(negative), Error);
  EXPECT_EQ(generator.position(), 0);
}

}  // namespace
}  // namespace strata::execute
