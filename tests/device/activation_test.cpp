#include <numbers>

#include "device/trial.h"

namespace strata::device {
namespace {

class ActivationTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(ActivationTest);

constexpr int64_t all_counts[] = {1, 3, 16, 17, 2049, 20011};

double gelu(double x, bool tanh) {
  if (!tanh) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x, bool tanh) {
  if (!tanh)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  const double k = std::sqrt(2 / std::numbers::pi), t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<float> unary(Device& device, ops::Op op, const std::vector<float>& x, bool in_place) {
  Trial trial(device);
  const ops::Shape shape = {static_cast<int64_t>(x.size())};
  op.in = {trial.add(shape, x)};
  op.out = {in_place ? op.in[0] : trial.empty(shape)};
  trial.run(op);
  return trial.read(op.out[0]);
}

TEST_P(ActivationTest, Gelu) {
  for (const bool tanh : {false, true})
    for (const int64_t count : all_counts) {
      const auto x = random_floats(count, 7, 2);
      std::vector<double> expected;
      for (float v : x) expected.push_back(gelu(v, tanh));
      ops::Op op{.kind = ops::Kind::gelu};
      op.attributes = ops::GeluAttributes{tanh};
      const auto results = run_on_any_threads([&](Device& device) {
        return Results{unary(device, op, x, false), unary(device, op, x, true)};
      });
      expect_close(results[0], expected, 3e-7);
      expect_same_bits(results[0], results[1]);
    }
}

/// -12 to 12 and far out: right to 3e-7 of max(|x|, 1), hence also in the tails.
TEST_P(ActivationTest, GeluOverItsRange) {
  const auto device = make();
  std::vector<float> x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  for (float far : {20.0f, 100.0f, 1e4f, 1e10f, 1e20f, 3e38f}) x.insert(x.end(), {far, -far});
  x.insert(x.end(), {0.0f, -0.0f, 1e-30f, -1e-30f});
  const std::vector<float> ones(x.size(), 1.0f);
  for (const bool tanh : {false, true}) {
    ops::Op op{.kind = ops::Kind::gelu};
    op.attributes = ops::GeluAttributes{tanh};
    const auto y = unary(*device, op, x, false);
    Trial trial(*device);
    op.kind = ops::Kind::gelu_backward;
    const ops::Shape shape = {static_cast<int64_t>(x.size())};
    op.in = {trial.add(shape, ones), trial.add(shape, x)};
    op.out = {trial.empty(shape)};
    trial.run(op);
    const auto slope = trial.read(op.out[0]);
    for (size_t i = 0; i < x.size(); ++i) {
      const double scale = std::max(1.0, std::abs(static_cast<double>(x[i])));
      ASSERT_NEAR(y[i], gelu(x[i], tanh), 3e-7 * scale) << x[i];
      if (std::abs(x[i]) < 1e6f) {
        ASSERT_NEAR(slope[i], gelu_slope(x[i], tanh), 1e-6) << x[i];
      } else {
        ASSERT_NEAR(slope[i], x[i] > 0 ? 1.0f : 0.0f, 1e-20) << x[i];
      }
      // The negative tail keeps its relative precision.
      if (x[i] < -0.5f && x[i] > -8.0f && !tanh) {
        ASSERT_NEAR(y[i] / gelu(x[i], tanh), 1, 1e-5) << x[i];
      }
    }
  }
}

TEST_P(ActivationTest, GeluBackward) {
  for (const bool tanh : {false, true})
    for (const int64_t count : all_counts) {
      const auto x = random_floats(count, 8, 2), dy = random_floats(count, 9);
      std::vector<double> expected;
      for (size_t i = 0; i < x.size(); ++i) expected.push_back(dy[i] * gelu_slope(x[i], tanh));
      const auto results = run_on_any_threads([&](Device& device) {
        std::vector<std::vector<float>> all;
        for (const int in_place : {-1, 0, 1}) {
          Trial trial(device);
          ops::Op op{.kind = ops::Kind::gelu_backward};
          op.attributes = ops::GeluAttributes{tanh};
          op.in = {trial.add({count}, dy), trial.add({count}, x)};
          op.out = {in_place < 0 ? trial.empty({count}) : op.in[static_cast<size_t>(in_place)]};
          trial.run(op);
          all.push_back(trial.read(op.out[0]));
        }
        return all;
      });
      expect_close(results[0], expected, 1e-6);
      expect_same_bits(results[0], results[1]);
      expect_same_bits(results[0], results[2]);
    }
}

/// An element's bits do not depend on where in a vector it stands, nor on its neighbours.
TEST_P(ActivationTest, BodyAndTailAgree) {
  const auto device = make();
  const auto x = random_floats(70, 10, 2);
  for (const bool tanh : {false, true}) {
    ops::Op op{.kind = ops::Kind::gelu};
    op.attributes = ops::GeluAttributes{tanh};
    const auto whole = unary(*device, op, x, false);
    for (size_t begin = 0; begin < x.size(); begin += 3)
      for (size_t count = 1; begin + count <= x.size(); count += 5) {
        const auto part = unary(*device, op, std::vector<float>(&x[begin], &x[begin] + count), false);
        expect_same_bits(part, std::vector<float>(&whole[begin], &whole[begin] + count));
      }
  }
}

TEST_P(ActivationTest, NaNStaysNaN) {
  const auto device = make();
  const std::vector<float> x = {NAN, 1, INFINITY};
  for (const bool tanh : {false, true}) {
    ops::Op op{.kind = ops::Kind::gelu};
    op.attributes = ops::GeluAttributes{tanh};
    const auto y = unary(*device, op, x, false);
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_FALSE(std::isnan(y[1]));
    EXPECT_EQ(y[2], INFINITY);
  }
  Trial trial(*device);
  ops::Op op{.kind = ops::Kind::swiglu};
  op.in = {trial.add<float>({2, 2}, {NAN, 1, 1, NAN})};
  op.out = {trial.empty({2, 1})};
  trial.run(op);
  for (float v : trial.read(op.out[0])) EXPECT_TRUE(std::isnan(v));
}

TEST_P(ActivationTest, Swiglu) {
  struct Sizes {
    int64_t rows, width;
  };
  for (const Sizes sizes : {Sizes{1, 1}, {3, 17}, {2, 64}, {9, 2049}}) {
    const auto x = random_floats(sizes.rows * 2 * sizes.width, 11, 3), dy = random_floats(sizes.rows * sizes.width, 12);
    const auto width = static_cast<size_t>(sizes.width);
    std::vector<double> y, dx(x.size());
    for (size_t row = 0; row < static_cast<size_t>(sizes.rows); ++row)
      for (size_t i = 0; i < width; ++i) {
        const size_t gate = row * 2 * width + i, up = gate + width;
        const double g = x[gate], s = sigmoid(g), v = dy[row * width + i];
        y.push_back(g * s * x[up]);
        dx[gate] = v * x[up] * (s + g * s * (1 - s));
        dx[up] = v * g * s;
      }
    const auto results = run_on_any_threads([&](Device& device) {
      Trial trial(device);
      ops::Op op{.kind = ops::Kind::swiglu};
      const int in = trial.add({sizes.rows, 2 * sizes.width}, x);
      op.in = {in};
      op.out = {trial.empty({sizes.rows, sizes.width})};
      trial.run(op);
      ops::Op back{.kind = ops::Kind::swiglu_backward};
      back.in = {trial.add({sizes.rows, sizes.width}, dy), in};
      back.out = {trial.empty({sizes.rows, 2 * sizes.width})};
      trial.run(back);
      ops::Op in_place = back;
      in_place.out = {in};
      trial.run(in_place);
      return Results{trial.read(op.out[0]), trial.read(back.out[0]), trial.read(in)};
    });
    expect_close(results[0], y, 3e-7);
    expect_close(results[1], dx, 1e-6);
    expect_same_bits(results[1], results[2]);
  }
}

/// Far out, where e^-x over- and underflows.
TEST_P(ActivationTest, SwigluSaturates) {
  const auto device = make();
  Trial trial(*device);
  ops::Op op{.kind = ops::Kind::swiglu};
  op.in = {trial.add<float>({4, 2}, {200, 2, -200, 2, 90, 1, -90, 1})};
  op.out = {trial.empty({4, 1})};
  trial.run(op);
  const auto y = trial.read(op.out[0]);
  EXPECT_EQ(y[0], 400);
  EXPECT_NEAR(y[1], 0, 1e-30);
  EXPECT_EQ(y[2], 90);
  EXPECT_NEAR(y[3], 0, 1e-30);
}

}  // namespace
}  // namespace strata::device
