// AdamW's copy of the weights in the compute type, and moments in blocks of 8-bit codes.

#include <algorithm>
#include <set>

#include "core/error.h"
#include "device/cpu/dynamic_codebook.h"
#include "device/trial.h"
#include "files/number_formats.h"

namespace strata::device {
namespace {

TEST(DynamicCodebook, IsTheFormula) {
  for (const bool is_signed : {true, false}) {
    std::vector<double> expected = {0, 1};
    for (int i = 0; i < 7; ++i) {
      const int parts = is_signed ? 1 << i : 1 << (i + 1);
      for (int j = 0; j < parts; ++j) {
        const double low = 0.1 + 0.9 * j / parts, high = 0.1 + 0.9 * (j + 1) / parts;
        const double value = (low + high) / 2 * std::pow(10.0, i - 6);
        expected.push_back(value);
        if (is_signed) expected.push_back(-value);
      }
    }
    std::sort(expected.begin(), expected.end());
    const auto& values = cpu::dynamic_codebook(is_signed).values;
    ASSERT_EQ(expected.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], std::abs(expected[i]) * 1.2e-7) << i;
    EXPECT_EQ(values[255], 1);
    EXPECT_EQ(values[is_signed ? 127 : 0], 0);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  }
}

class AdamWBlocksTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(AdamWBlocksTest);

struct State {
  std::vector<float> w;
  std::vector<uint8_t> m, v;
  std::vector<float> scale1, scale2;
  std::vector<uint16_t> copy;

  State(int64_t elements, int64_t block)
      : w(random_floats(elements, 1)),
        m(static_cast<size_t>(elements)),
        v(m.size()),
        scale1(static_cast<size_t>(elements / block)),
        scale2(scale1),
        copy(m.size(), 0x1234) {}
  bool operator==(const State&) const = default;
  float first(size_t i, int64_t block) const {
    return cpu::dynamic_codebook(true).values[m[i]] * scale1[i / static_cast<size_t>(block)];
  }
  float second(size_t i, int64_t block) const {
    return cpu::dynamic_codebook(false).values[v[i]] * scale2[i / static_cast<size_t>(block)];
  }
};

struct Settings {
  ops::AdamWAttributes attributes{.weight_decay = 0, .ranges = {}, .block = 256};
  float rate = 1e-2f, bias1 = 1, bias2 = 1, clip = 1;
  int32_t skipped = 0;
  DType copy = DType::bf16;
};

State step(Device& device, const Settings& s, State state, const std::vector<float>& gradient) {
  Trial trial(device);
  const auto elements = static_cast<int64_t>(gradient.size());
  const ops::Shape shape = {elements}, scales = {elements / s.attributes.block};
  ops::Op op{.kind = ops::Kind::adamw, .attributes = s.attributes};
  op.in = {trial.add(shape, gradient), trial.inputs({.learning_rate = s.rate, .bias1 = s.bias1, .bias2 = s.bias2}),
           trial.add<ops::StepResults>({1}, {{1.0, s.clip, s.skipped}})};
  op.out = {trial.add(shape, state.w),       trial.add(shape, state.m),       trial.add(shape, state.v),
            trial.add(scales, state.scale1), trial.add(scales, state.scale2), trial.empty_of(s.copy, shape)};
  trial.write(op.out[5], state.copy);
  trial.run(op);
  state.w = trial.read(op.out[0]);
  state.m = trial.read<uint8_t>(op.out[1]);
  state.v = trial.read<uint8_t>(op.out[2]);
  state.scale1 = trial.read(op.out[3]);
  state.scale2 = trial.read(op.out[4]);
  state.copy = trial.read<uint16_t>(op.out[5]);
  return state;
}

/// Moments that are just the gradient and its square.
Settings memoryless(int64_t elements) {
  Settings s;
  s.attributes.beta1 = s.attributes.beta2 = 0;
  s.attributes.ranges = {{0, elements, true}};
  return s;
}

/// No value lies nearer than the chosen one, but for fp32's rounding where x is midway between two.
void expect_nearest(bool is_signed, float x, uint8_t code) {
  const auto& values = cpu::dynamic_codebook(is_signed).values;
  const auto distance = [&](size_t c) { return std::abs(static_cast<double>(values[c]) - static_cast<double>(x)); };
  size_t nearest = 0;
  for (size_t c = 0; c < values.size(); ++c)
    if (distance(c) < distance(nearest)) nearest = c;
  const double apart = std::abs(static_cast<double>(values[code]) - static_cast<double>(values[nearest]));
  ASSERT_LE(distance(code), distance(nearest) + 1e-4 * apart) << x << " became " << values[code];
}

TEST_P(AdamWBlocksTest, CodesAreTheNearest) {
  // Each block's largest is 1, so that a value is what is coded. Around each middle of two values, and anywhere.
  const int64_t block = 256;
  std::vector<float> inputs;
  for (const bool is_signed : {true, false}) {
    const auto& values = cpu::dynamic_codebook(is_signed).values;
    for (size_t c = 0; c + 1 < values.size(); ++c) {
      float x = static_cast<float>((static_cast<double>(values[c]) + static_cast<double>(values[c + 1])) / 2);
      if (!is_signed) x = std::sqrt(x);
      for (int i = 0; i < 3; ++i) x = std::nextafter(x, -2.0f);
      for (int i = 0; i < 7; ++i, x = std::nextafter(x, 2.0f)) inputs.push_back(x);
    }
    for (const float v : values) inputs.push_back(is_signed ? v : std::sqrt(v));
  }
  for (const float power : {0.0f, -2.0f, -5.0f, -7.0f})
    for (float v : random_floats(300, 8, std::pow(10.0f, power))) inputs.push_back(std::clamp(v, -1.0f, 1.0f));
  for (const float tiny : {0.0f, -0.0f, 1e-10f, -1e-30f, 1e-40f}) inputs.push_back(tiny);
  std::vector<float> gradient;
  for (const float x : inputs) {
    if (gradient.size() % block == 0) gradient.push_back(1);
    gradient.push_back(x);
  }
  while (gradient.size() % block != 0) gradient.push_back(1);
  const auto elements = static_cast<int64_t>(gradient.size());
  const auto device = make();
  const State after = step(*device, memoryless(elements), State(elements, block), gradient);
  for (size_t i = 0; i < gradient.size(); ++i) {
    expect_nearest(true, gradient[i], after.m[i]);
    expect_nearest(false, gradient[i] * gradient[i], after.v[i]);
    if (HasFatalFailure()) FAIL() << "element " << i;
  }
  for (float scale : after.scale1) EXPECT_EQ(scale, 1);
}

TEST_P(AdamWBlocksTest, ValuesOfTheCodebookComeBack) {
  for (const int64_t block : {int64_t{64}, int64_t{256}, int64_t{2048}})
    for (const float scale : {1.0f, 0.37f, 1e-20f, 3e7f}) {
      const int64_t elements = 4096;
      State before(elements, block);
      for (size_t i = 0; i < before.m.size(); ++i) {
        before.m[i] = before.v[i] = static_cast<uint8_t>(i * 37 % 256);
        if (i % static_cast<size_t>(block) == 5) before.m[i] = before.v[i] = 255;  // the largest
      }
      std::fill(before.scale1.begin(), before.scale1.end(), scale);
      std::fill(before.scale2.begin(), before.scale2.end(), scale);
      Settings s;
      s.attributes.beta1 = s.attributes.beta2 = 1;  // moments stay
      s.attributes.block = block;
      s.attributes.ranges = {{0, elements, true}};
      s.rate = 0;
      const auto device = make();
      State after = step(*device, s, before, std::vector<float>(before.m.size(), 0.0f));
      after.copy = before.copy;
      EXPECT_TRUE(after == before) << block << ", " << scale;
    }
}

TEST_P(AdamWBlocksTest, ABlocksScaleIsItsLargest) {
  const int64_t elements = 4 * ops::grain, block = 256;
  auto gradient = random_floats(elements, 3);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] *= std::pow(10.0f, static_cast<float>(i / 1024) - 4);
  std::fill(gradient.begin() + block, gradient.begin() + 2 * block, 0.0f);  // nothing to scale by
  const auto device = make();
  const State after = step(*device, memoryless(elements), State(elements, block), gradient);
  for (size_t b = 0; b < after.scale1.size(); ++b) {
    float largest = 0;
    for (size_t i = 0; i < 256; ++i) largest = std::max(largest, std::abs(gradient[b * 256 + i]));
    EXPECT_EQ(after.scale1[b], largest);
    EXPECT_EQ(after.scale2[b], largest * largest);
    for (size_t i = b * 256; i < (b + 1) * 256; ++i) {
      // Within half of the widest step, relative to the block's largest; zero is zero.
      ASSERT_NEAR(after.first(i, block), gradient[i], 0.0071f * largest);
      if (largest == 0) {
        ASSERT_EQ(after.first(i, block), 0);
        ASSERT_EQ(after.second(i, block), 0);
      }
    }
  }
}

/// The update itself is fp32's with the moments as decoded.
TEST_P(AdamWBlocksTest, UpdatesInFp32BetweenCodes) {
  for (const int64_t block : {int64_t{64}, int64_t{256}, int64_t{2048}}) {
    const int64_t elements = 2 * ops::grain;
    Settings s;
    s.attributes = {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1f, .ranges = {{0, elements, true}}, .block = block};
    s.bias1 = 0.4f;
    s.bias2 = 0.2f;
    s.clip = 0.7f;
    State before(elements, block);
    for (size_t i = 0; i < before.m.size(); ++i) {
      before.m[i] = static_cast<uint8_t>(i * 31);
      before.v[i] = static_cast<uint8_t>(i * 17 + 3);
    }
    std::fill(before.scale1.begin(), before.scale1.end(), 0.02f);
    std::fill(before.scale2.begin(), before.scale2.end(), 0.003f);
    const auto gradient = random_floats(elements, 4, 0.1f);
    const auto states = run_on_any_threads([&](Device& device) {
      const State after = step(device, s, before, gradient);
      std::vector<float> all = after.w;
      all.insert(all.end(), after.scale1.begin(), after.scale1.end());
      for (uint8_t code : after.m) all.push_back(code);
      for (uint8_t code : after.v) all.push_back(code);
      for (uint16_t bits : after.copy) all.push_back(bits);
      return Results{all};
    });
    std::vector<double> expected;
    for (size_t i = 0; i < before.w.size(); ++i) {
      const double g = static_cast<double>(gradient[i]) * static_cast<double>(s.clip), lr = s.rate;
      const double m = 0.9 * before.first(i, block) + 0.1 * g, v = 0.95 * before.second(i, block) + 0.05 * g * g;
      const double w = before.w[i] * (1 - lr * static_cast<double>(0.1f));
      expected.push_back(w - lr / static_cast<double>(s.bias1) * m /
                                 (std::sqrt(v / static_cast<double>(s.bias2)) + static_cast<double>(1e-8f)));
    }
    std::vector<float> w(states[0].begin(), states[0].begin() + elements);
    expect_close(w, expected, 3e-7);
  }
}

TEST_P(AdamWBlocksTest, PaddingStaysZeroAndUntouchedBlocksStay) {
  const int64_t elements = 3 * ops::grain, block = 256;
  Settings s;
  s.attributes.ranges = {{0, 17, true}, {30, 900, false}, {2048, 2049, true}, {4000, 5001, true}};
  State before(elements, block);
  std::vector<bool> inside(before.w.size());
  for (const auto& range : s.attributes.ranges)
    std::fill(inside.begin() + range.begin, inside.begin() + range.end, true);
  for (size_t i = 0; i < inside.size(); ++i)
    if (!inside[i]) before.w[i] = 0;
  const auto device = make();
  State after = before;
  for (unsigned t = 0; t < 3; ++t) after = step(*device, s, after, random_floats(elements, t));
  const std::set<size_t> touched = {0, 1, 2, 3, 8, 15, 16, 17, 18, 19};
  for (size_t i = 0; i < inside.size(); ++i) {
    if (!inside[i]) {
      ASSERT_EQ(after.w[i], 0) << i;
      ASSERT_EQ(after.copy[i], 0) << i;
      ASSERT_EQ(after.first(i, block), 0) << i;
      ASSERT_EQ(after.second(i, block), 0) << i;
    } else {
      ASSERT_NE(after.w[i], before.w[i]);
    }
    if (!touched.contains(i / 256)) {
      ASSERT_EQ(after.m[i], before.m[i]);
      ASSERT_EQ(after.scale1[i / 256], 0);
    }
  }
}

TEST_P(AdamWBlocksTest, SkippedChangesNothing) {
  const int64_t elements = ops::grain;
  Settings s;
  s.attributes.ranges = {{0, elements, true}};
  s.skipped = 1;
  State before(elements, 256);
  before.m[3] = 7;
  before.scale2[1] = 4;
  auto gradient = random_floats(elements, 5);
  gradient[9] = NAN;
  const auto device = make();
  EXPECT_TRUE(step(*device, s, before, gradient) == before);
}

/// The copy is the weights, rounded, of all the shard; with and without 8-bit moments.
TEST_P(AdamWBlocksTest, CopyIsTheWeightsRounded) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const int64_t elements : {int64_t{1}, int64_t{17}, int64_t{100}, 2 * ops::grain, int64_t{20011}}) {
      const auto results = run_on_any_threads([&](Device& device) {
        Trial trial(device);
        const ops::Shape shape = {elements};
        ops::Op op{.kind = ops::Kind::adamw};
        const int64_t gap = elements / 2;  // of one element, where there is room
        op.attributes = ops::AdamWAttributes{.weight_decay = 0.1f,
                                             .ranges = {{0, gap, true}, {std::min(gap + 1, elements), elements, false}},
                                             .block = 0};
        auto w = random_floats(elements, 6);
        w[static_cast<size_t>(gap)] = 0;
        op.in = {trial.add(shape, random_floats(elements, 7)),
                 trial.inputs({.learning_rate = 0.01f, .bias1 = 0.1f, .bias2 = 0.05f}),
                 trial.add<ops::StepResults>({1}, {{}})};
        const std::vector<float> zeros(w.size());
        op.out = {trial.add(shape, w), trial.add(shape, zeros), trial.add(shape, zeros), trial.empty_of(type, shape)};
        trial.run(op);
        const auto after = trial.read(op.out[0]);
        const auto copy = trial.read<uint16_t>(op.out[3]);
        for (size_t i = 0; i < after.size(); ++i)
          EXPECT_EQ(copy[i], type == DType::bf16 ? files::float_to_bf16(after[i]) : files::float_to_f16(after[i])) << i;
        return std::vector<std::vector<uint16_t>>{copy};
      });
      EXPECT_EQ(results[0].size(), static_cast<size_t>(elements));
    }
}

/// Minimising a quadratic, 8-bit moments end where fp32's do.
TEST_P(AdamWBlocksTest, ConvergesLikeFp32) {
  const int64_t elements = ops::grain;
  const auto goal = random_floats(elements, 11), steepness = random_floats(elements, 12);
  double losses[2];
  for (const int64_t block : {int64_t{0}, int64_t{256}}) {
    const auto device = make();
    Trial trial(*device);
    const ops::Shape shape = {elements};
    ops::Op op{.kind = ops::Kind::adamw};
    op.attributes = ops::AdamWAttributes{.weight_decay = 0, .ranges = {{0, elements, true}}, .block = block};
    std::vector<float> w(goal.size());
    op.in = {trial.empty(shape), trial.inputs({}), trial.add<ops::StepResults>({1}, {{}})};
    op.out = {trial.add(shape, w)};
    const std::vector<float> zeros(w.size());
    const std::vector<uint8_t> codes(w.size());
    for (int i = 0; i < 2; ++i) op.out.push_back(block > 0 ? trial.add(shape, codes) : trial.add(shape, zeros));
    for (int i = 0; i < 2 && block > 0; ++i)
      op.out.push_back(trial.add<float>({elements / block}, std::vector<float>(static_cast<size_t>(elements / block))));
    double loss = 0;
    for (int t = 1; t <= 150; ++t) {
      std::vector<float> gradient;
      loss = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        const float a = 0.1f + std::abs(steepness[i]);
        gradient.push_back(a * (w[i] - goal[i]));
        loss += 0.5 * static_cast<double>(gradient.back() * (w[i] - goal[i]));
      }
      trial.write(op.in[0], gradient);
      trial.write(op.in[1], std::vector<ops::StepInputs>{{.learning_rate = 0.03f * (1 - static_cast<float>(t) / 200),
                                                          .bias1 = static_cast<float>(1 - std::pow(0.9, t)),
                                                          .bias2 = static_cast<float>(1 - std::pow(0.999, t))}});
      trial.run(op);
      w = trial.read(op.out[0]);
    }
    losses[block > 0] = loss;
  }
  double start = 0;
  for (size_t i = 0; i < goal.size(); ++i)
    start += 0.5 * static_cast<double>((0.1f + std::abs(steepness[i])) * goal[i] * goal[i]);
  EXPECT_LT(losses[0], 0.03 * start);
  EXPECT_NEAR(losses[1], losses[0], 0.01 * start);
}

TEST_P(AdamWBlocksTest, RefusesBlocksThatDoNotFit) {
  const auto device = make();
  for (const int64_t block : {int64_t{32}, int64_t{96}, int64_t{4096}, int64_t{-64}}) {
    Trial trial(*device);
    const int64_t elements = 4096;
    const ops::Shape shape = {elements}, scales = {std::max<int64_t>(1, elements / block)};
    ops::Op op{.kind = ops::Kind::adamw};
    op.attributes = ops::AdamWAttributes{.ranges = {}, .block = block};
    op.in = {trial.empty(shape), trial.inputs({}), trial.add<ops::StepResults>({1}, {{}})};
    op.out = {trial.empty(shape), trial.empty_of(DType::u8, shape), trial.empty_of(DType::u8, shape),
              trial.empty(scales), trial.empty(scales)};
    EXPECT_THROW((void)device->prepare(op, trial.tensors()), InternalError) << block;
  }
}

}  // namespace
}  // namespace strata::device
