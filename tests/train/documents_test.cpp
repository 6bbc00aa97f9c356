// Attention that stays inside documents: nothing of one document reaches another.

#include <gtest/gtest.h>

#include <cmath>

#include "execute/model_state.h"
#include "step/small_job.h"
#include "train/runner.h"

namespace strata::train {
namespace {

constexpr int64_t length = 32, first_tokens = 13;

/// Logits of the second document's tokens, behind a first document of tokens that depend on `which`.
std::vector<float> logits_behind(int which, bool across, DType compute) {
  job::Job job = step::small_job(model::Family::llama);  // rotary positions are relative
  job.batch = {.global = 1, .micro = 1, .sequence = length};
  job.precision.compute = compute;
  job.data.attention_across_documents = across;
  const auto device = device::make_cpu(2);
  Runner runner(job, *device, {.train = false, .evaluate = true, .inspect = true});
  runner.initialise(3);
  std::vector<int32_t> sample, starts;
  for (int64_t i = 0; i <= length; ++i) {
    const bool second = i >= first_tokens;
    sample.push_back(static_cast<int32_t>((i * 31 + (second ? 5 : which * 17)) % 211));
    if (i < length) starts.push_back(second ? first_tokens : 0);
  }
  runner.fill(step::Goal::evaluate, 0, sample, 0, starts);
  runner.evaluate();
  const int64_t width = job.model.padded_vocab();
  std::vector<float> logits(static_cast<size_t>((length - first_tokens) * width));
  execute::read_floats(runner.executor(step::Goal::evaluate), ops::Role::logits, -1, 0, compute, first_tokens * width,
                       logits);
  return logits;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

TEST(Documents, AreAloneUnlessAttentionCrossesThem) {
  for (DType compute : {DType::f32, DType::bf16}) {
    EXPECT_EQ(largest_difference(logits_behind(0, false, compute), logits_behind(1, false, compute)), 0);
    EXPECT_GT(largest_difference(logits_behind(0, true, compute), logits_behind(1, true, compute)), 1e-3);
  }
}

}  // namespace
}  // namespace strata::train
