#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class UpdateTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(UpdateTest);

using Limbs = std::vector<int64_t>;

/// Adds g's norm to `sum`.
Limbs add_norm(Device& device, const std::vector<float>& g, const Limbs& sum = Limbs(ops::norm_limbs)) {
  Trial trial(device);
  ops::Op op{.kind = ops::Kind::grad_norm};
  op.in = {trial.add({static_cast<int64_t>(g.size())}, g)};
  op.out = {trial.add<int64_t>({ops::norm_limbs}, sum)};
  trial.run(op);
  return trial.read<int64_t>(op.out[0]);
}

ops::StepResults clip(Device& device, const Limbs& sum, float max_norm, float inverse_loss_scale = 1) {
  Trial trial(device);
  ops::Op op{.kind = ops::Kind::clip};
  op.attributes = ops::ClipAttributes{max_norm};
  op.in = {trial.add<int64_t>({ops::norm_limbs}, sum), trial.inputs({.inverse_loss_scale = inverse_loss_scale})};
  op.out = {trial.empty<ops::StepResults>({1})};
  trial.run(op);
  return trial.read<ops::StepResults>(op.out[0])[0];
}

double norm_of(const std::vector<float>& g) {
  long double sum = 0;
  for (float v : g) sum += static_cast<long double>(v) * static_cast<long double>(v);
  return static_cast<double>(std::sqrt(sum));
}

TEST_P(UpdateTest, NormOfManyMagnitudes) {
  for (const int64_t grains : {1, 3, 17})
    for (const float scale : {1.0f, 1e-3f, 1e-20f, 1e15f, 3e37f}) {
      const auto g = random_floats(grains * ops::grain, 1, scale);
      const auto results = run_on_any_threads([&](Device& device) { return std::vector<Limbs>{add_norm(device, g)}; });
      const auto device = make();
      const ops::StepResults clipped = clip(*device, results[0], 0);
      EXPECT_EQ(clipped.skipped, 0);
      EXPECT_EQ(clipped.clip_factor, 1);
      EXPECT_NEAR(clipped.grad_norm / norm_of(g), 1, 1e-12) << grains << " grains of " << scale;
    }
}

TEST_P(UpdateTest, NormIsExactWhereDoublesAreNot) {
  // 2^60 and many times 1: in a double sum the small ones would vanish.
  const auto device = make();
  std::vector<float> g(64 * ops::grain, 0.0f);
  g[0] = 0x1p30f;
  for (int64_t grain = 1; grain < 64; ++grain) g[static_cast<size_t>(grain * ops::grain + grain)] = 1;
  const Limbs sum = add_norm(*device, g);
  // 2^60 + 63 at weight 2^-192: bits 252 and 192 on.
  Limbs expected(ops::norm_limbs);
  expected[6] = 63;
  expected[7] = 1 << 28;
  EXPECT_EQ(sum, expected);
}

TEST_P(UpdateTest, NormDoesNotDependOnOrderOrSplit) {
  const auto device = make();
  const int64_t grains = 12;
  std::vector<float> g = random_floats(grains * ops::grain, 2);
  // Grains of very different size.
  for (int64_t i = 0; i < grains; ++i)
    for (int64_t j = 0; j < ops::grain; ++j)
      g[static_cast<size_t>(i * ops::grain + j)] *= std::pow(10.0f, static_cast<float>(3 * i - 18));
  const ops::StepResults whole = clip(*device, add_norm(*device, g), 1.0f);

  std::vector<size_t> order(static_cast<size_t>(grains));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  Limbs sum(ops::norm_limbs);
  Limbs other(ops::norm_limbs);  // as if another rank had every second one
  for (size_t i = 0; i < order.size(); ++i) {
    const auto first = g.begin() + static_cast<int64_t>(order[i]) * ops::grain;
    Limbs& part = i % 2 == 0 ? sum : other;
    part = add_norm(*device, std::vector<float>(first, first + ops::grain), part);
  }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  const ops::StepResults split = clip(*device, sum, 1.0f);
  EXPECT_EQ(std::memcmp(&whole.grad_norm, &split.grad_norm, sizeof(double)), 0);
  EXPECT_EQ(whole.clip_factor, split.clip_factor);
}

TEST_P(UpdateTest, ClipAsTorchDoes) {
  const auto device = make();
  std::vector<float> g(ops::grain, 0.0f);
  g[5] = 3;
  g[2000] = -4;
  const Limbs sum = add_norm(*device, g);
  EXPECT_DOUBLE_EQ(clip(*device, sum, 0).grad_norm, 5);
  EXPECT_EQ(clip(*device, sum, 0).clip_factor, 1);
  EXPECT_EQ(clip(*device, sum, 6).clip_factor, 1);
  EXPECT_FLOAT_EQ(clip(*device, sum, 1).clip_factor, static_cast<float>(1 / (5 + 1e-6)));
  EXPECT_FLOAT_EQ(clip(*device, sum, 5).clip_factor, static_cast<float>(5 / (5 + 1e-6)));
  // With a loss scale of 1024 the gradients arrive 1024 times too large.
  const ops::StepResults scaled = clip(*device, sum, 1, 1.0f / 1024);
  EXPECT_DOUBLE_EQ(scaled.grad_norm, 5.0 / 1024);
  EXPECT_EQ(scaled.clip_factor, 1);
  const ops::StepResults nothing = clip(*device, Limbs(ops::norm_limbs), 1);
  EXPECT_EQ(nothing.grad_norm, 0);
  EXPECT_EQ(nothing.clip_factor, 1);
}

TEST_P(UpdateTest, AnyNonFiniteGradientSkips) {
  const auto device = make();
  for (const float bad : {static_cast<float>(NAN), INFINITY, -INFINITY})
    for (const size_t where : {size_t{0}, size_t{2047}, size_t{2048}, size_t{5000}}) {
      std::vector<float> g = random_floats(3 * ops::grain, 4);
      g[where] = bad;
      Limbs sum = add_norm(*device, g);
      // Other grains and ranks, finite or not, do not hide it.
      sum = add_norm(*device, random_floats(ops::grain, 5), sum);
      for (int64_t& limb : sum) limb *= 3;
      const ops::StepResults results = clip(*device, sum, 1);
      EXPECT_EQ(results.skipped, 1) << bad << " at " << where;
      EXPECT_FALSE(std::isfinite(results.grad_norm));
    }
  // The largest finite gradients are no reason to skip.
  const ops::StepResults large = clip(*device, add_norm(*device, std::vector<float>(4 * ops::grain, 3.4e38f)), 1);
  EXPECT_EQ(large.skipped, 0);
  EXPECT_NEAR(large.grad_norm / (3.4e38 * std::sqrt(4.0 * ops::grain)), 1, 1e-6);
}

TEST_P(UpdateTest, TooSmallToCountIsDropped) {
  const auto device = make();
  const ops::StepResults tiny = clip(*device, add_norm(*device, std::vector<float>(ops::grain, 1e-40f)), 1);
  EXPECT_EQ(tiny.skipped, 0);
  EXPECT_LT(tiny.grad_norm, 1e-28);
}

TEST_P(UpdateTest, NormWantsWholeGrains) {
  const auto device = make();
  EXPECT_THROW(add_norm(*device, std::vector<float>(ops::grain + 1)), InternalError);
}

struct Adam {
  int64_t elements = 2048;
  double beta1 = 0.9, beta2 = 0.999;
  float epsilon = 1e-8f, weight_decay = 0.1f, rate = 1e-2f;
  float clip_factor = 1, inverse_loss_scale = 1;
  int32_t skipped = 0;
  std::vector<ops::DecayRange> ranges;
  std::vector<float> w, m, v;
  std::vector<std::vector<float>> gradients;  // one a step

  explicit Adam(int64_t n, size_t steps = 3) : elements(n), ranges{{0, n, true}} {
    w = random_floats(n, 1);
    m.assign(static_cast<size_t>(n), 0.0f);
    v = m;
    for (unsigned t = 0; t < steps; ++t) gradients.push_back(random_floats(n, 10 + t, 0.1f));
  }

  std::vector<std::vector<float>> run(Device& device) const {
    Trial trial(device);
    ops::Op op{.kind = ops::Kind::adamw};
    op.attributes = ops::AdamWAttributes{beta1, beta2, epsilon, weight_decay, ranges};
    const ops::Shape shape = {elements};
    op.in = {trial.add(shape, gradients[0]), trial.inputs({}), trial.empty<ops::StepResults>({1})};
    op.out = {trial.add(shape, w), trial.add(shape, m), trial.add(shape, v)};
    for (size_t t = 0; t < gradients.size(); ++t) {
      trial.write(op.in[0], gradients[t]);
      const auto step = static_cast<double>(t + 1);
      trial.write(op.in[1], std::vector<ops::StepInputs>{{.inverse_loss_scale = inverse_loss_scale,
                                                          .learning_rate = rate,
                                                          .bias1 = static_cast<float>(1 - std::pow(beta1, step)),
                                                          .bias2 = static_cast<float>(1 - std::pow(beta2, step))}});
      trial.write(op.in[2], std::vector<ops::StepResults>{{1.0, clip_factor, skipped}});
      trial.run(op);
    }
    return {trial.read(op.out[0]), trial.read(op.out[1]), trial.read(op.out[2])};
  }

  /// torch.optim.AdamW's formulas, in double.
  std::vector<std::vector<double>> oracle() const {
    std::vector<double> weight(w.begin(), w.end()), first(m.begin(), m.end()), second(v.begin(), v.end());
    const double lr = rate;
    for (size_t t = 0; t < gradients.size(); ++t) {
      const double bias1 = 1 - std::pow(beta1, static_cast<double>(t + 1));
      const double bias2 = 1 - std::pow(beta2, static_cast<double>(t + 1));
      for (const ops::DecayRange& range : ranges)
        for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
          const double g = static_cast<double>(gradients[t][i]) * static_cast<double>(clip_factor) *
                           static_cast<double>(inverse_loss_scale);
          if (range.decay) weight[i] *= 1 - lr * static_cast<double>(weight_decay);
          first[i] = beta1 * first[i] + (1 - beta1) * g;
          second[i] = beta2 * second[i] + (1 - beta2) * g * g;
          weight[i] -= lr / bias1 * first[i] / (std::sqrt(second[i]) / std::sqrt(bias2) + static_cast<double>(epsilon));
        }
    }
    return {weight, first, second};
  }
};

TEST_P(UpdateTest, AdamW) {
  for (const int64_t elements : {int64_t{1}, int64_t{3}, int64_t{17}, int64_t{2049}, int64_t{30011}}) {
    const Adam adam(elements);
    const auto results = run_on_any_threads([&](Device& device) { return adam.run(device); });
    const auto expected = adam.oracle();
    for (size_t i = 0; i < 3; ++i) expect_close(results[i], expected[i], 3e-7);
  }
}

TEST_P(UpdateTest, AdamWScalesGradients) {
  const auto device = make();
  Adam adam(100);
  adam.clip_factor = 0.37f;
  adam.inverse_loss_scale = 1.0f / 512;
  adam.beta2 = 0.95;
  adam.epsilon = 1e-4f;
  const auto results = adam.run(*device);
  const auto expected = adam.oracle();
  for (size_t i = 0; i < 3; ++i) expect_close(results[i], expected[i], 3e-7);
}

TEST_P(UpdateTest, AdamWLeavesGapsAndPaddingAlone) {
  Adam adam(20000);
  adam.ranges = {{0, 17, true}, {32, 5000, false}, {5008, 5009, true}, {9000, 19999, true}};
  const auto results = run_on_any_threads([&](Device& device) { return adam.run(device); });
  const auto expected = adam.oracle();
  for (size_t i = 0; i < 3; ++i) expect_close(results[i], expected[i], 3e-7);
  for (const size_t outside :
       {size_t{17}, size_t{31}, size_t{5000}, size_t{5007}, size_t{5009}, size_t{8999}, size_t{19999}}) {
    EXPECT_EQ(results[0][outside], adam.w[outside]);
    EXPECT_EQ(results[1][outside], 0);
    EXPECT_EQ(results[2][outside], 0);
  }
}

/// A shard's elements come out as in the whole vector, wherever it was cut.
TEST_P(UpdateTest, AdamWOfAShardHasTheSameBits) {
  const auto device = make();
  const Adam adam(4 * ops::grain);
  const auto whole = adam.run(*device);
  for (int64_t shard = 0; shard < 4; ++shard) {
    const auto cut = [&](const std::vector<float>& v) {
      return std::vector<float>(v.begin() + shard * ops::grain, v.begin() + (shard + 1) * ops::grain);
    };
    Adam part = adam;
    part.elements = ops::grain;
    part.w = cut(adam.w);
    part.m = cut(adam.m);
    part.v = cut(adam.v);
    for (auto& g : part.gradients) g = cut(g);
    part.ranges = {{0, 5, true}, {5, ops::grain, true}};
    const auto results = part.run(*device);
    for (size_t i = 0; i < 3; ++i) expect_same_bits(results[i], cut(whole[i]));
  }
}

TEST_P(UpdateTest, SkippedChangesNothing) {
  const auto device = make();
  Adam adam(3000);
  adam.skipped = 1;
  adam.m = random_floats(3000, 5);
  adam.v = random_floats(3000, 6);
  adam.gradients[1][7] = NAN;
  const auto results = adam.run(*device);
  expect_same_bits(results[0], adam.w);
  expect_same_bits(results[1], adam.m);
  expect_same_bits(results[2], adam.v);
}

}  // namespace
}  // namespace strata::device
