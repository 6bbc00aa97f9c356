#include <numeric>

#include "device/trial.h"

namespace strata::device {
namespace {

class NormTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(NormTest);

struct Sizes {
  int64_t rows, width;
};
constexpr Sizes all_sizes[] = {{1, 1}, {1, 17}, {3, 3}, {5, 64}, {33, 48}, {7, 2049}, {70, 129}};
constexpr float epsilon = 1e-5f;

/// In double: y, mean, rstd of every row.
struct Oracle {
  std::vector<double> y, mean, rstd, dx, dgamma, dbeta;

  Oracle(Sizes sizes, bool layer, const std::vector<float>& x, const std::vector<float>& gamma,
         const std::vector<float>& beta, const std::vector<float>& dy)
      : dgamma(gamma.size()), dbeta(gamma.size()) {
    const auto width = static_cast<size_t>(sizes.width);
    for (size_t row = 0; row < static_cast<size_t>(sizes.rows); ++row) {
      const float* in = &x[row * width];
      double m = 0, variance = 0;
      if (layer) m = std::accumulate(in, in + width, 0.0) / static_cast<double>(width);
      for (size_t i = 0; i < width; ++i) variance += (in[i] - m) * (in[i] - m) / static_cast<double>(width);
      const double r = 1 / std::sqrt(variance + static_cast<double>(epsilon));
      mean.push_back(m);
      rstd.push_back(r);
      double mean_g = 0, mean_gn = 0;
      for (size_t i = 0; i < width; ++i) {
        const double n = (in[i] - m) * r, g = dy[row * width + i] * static_cast<double>(gamma[i]);
        y.push_back(n * gamma[i] + (layer ? beta[i] : 0.0f));
        mean_g += g / static_cast<double>(width);
        mean_gn += g * n / static_cast<double>(width);
        dgamma[i] += dy[row * width + i] * n;
        dbeta[i] += dy[row * width + i];
      }
      for (size_t i = 0; i < width; ++i) {
        const double n = (in[i] - m) * r, g = dy[row * width + i] * static_cast<double>(gamma[i]);
        dx.push_back(r * (g - (layer ? mean_g : 0) - n * mean_gn));
      }
    }
  }
};

struct Case {
  Sizes sizes;
  bool layer;
  std::vector<float> x, gamma, beta, dy, addend;
  Oracle oracle;

  Case(Sizes s, bool l)
      : sizes(s),
        layer(l),
        x(random_floats(s.rows * s.width, 1, 3)),
        gamma(random_floats(s.width, 2)),
        beta(random_floats(s.width, 3)),
        dy(random_floats(s.rows * s.width, 4)),
        addend(random_floats(s.rows * s.width, 5)),
        oracle(s, l, x, gamma, beta, dy) {}
};

std::vector<std::vector<float>> forward(Device& device, const Case& c) {
  Trial trial(device);
  const ops::Shape shape = {c.sizes.rows, c.sizes.width};
  ops::Op op{.kind = c.layer ? ops::Kind::layer_norm : ops::Kind::rms_norm};
  op.attributes = ops::NormAttributes{epsilon};
  op.in = {trial.add(shape, c.x), trial.add({c.sizes.width}, c.gamma)};
  if (c.layer) op.in.push_back(trial.add({c.sizes.width}, c.beta));
  op.out = {trial.empty(shape)};
  if (c.layer) op.out.push_back(trial.empty({c.sizes.rows}));
  op.out.push_back(trial.empty({c.sizes.rows}));
  trial.run(op);
  std::vector<std::vector<float>> results;
  for (int i : op.out) results.push_back(trial.read(i));
  return results;
}

enum class Addend { none, apart, in_place };

std::vector<std::vector<float>> backward(Device& device, const Case& c, Addend addend, bool accumulate) {
  Trial trial(device);
  const ops::Shape shape = {c.sizes.rows, c.sizes.width}, vector = {c.sizes.width};
  const auto rounded = [](const std::vector<double>& v) { return std::vector<float>(v.begin(), v.end()); };
  ops::Op op{.kind = c.layer ? ops::Kind::layer_norm_backward : ops::Kind::rms_norm_backward};
  op.attributes = ops::NormAttributes{epsilon};
  op.accumulate = accumulate;
  op.in = {trial.add(shape, c.dy), trial.add(shape, c.x), trial.add(vector, c.gamma)};
  if (c.layer) op.in.push_back(trial.add({c.sizes.rows}, rounded(c.oracle.mean)));
  op.in.push_back(trial.add({c.sizes.rows}, rounded(c.oracle.rstd)));
  if (addend != Addend::none) op.in.push_back(trial.add(shape, c.addend));
  op.out = {addend == Addend::in_place ? op.in.back() : trial.empty(shape)};
  for (int i = 0; i < (c.layer ? 2 : 1); ++i)
    op.out.push_back(accumulate ? trial.add(vector, c.beta) : trial.empty(vector));
  trial.run(op);
  std::vector<std::vector<float>> results;
  for (int i : op.out) results.push_back(trial.read(i));
  return results;
}

TEST_P(NormTest, Forward) {
  for (const bool layer : {true, false})
    for (const Sizes sizes : all_sizes) {
      const Case c(sizes, layer);
      const auto results = run_on_any_threads([&](Device& device) { return forward(device, c); });
      SCOPED_TRACE(testing::Message() << (layer ? "layer " : "rms ") << sizes.rows << " x " << sizes.width);
      expect_close(results[0], c.oracle.y, 1e-6);
      if (layer) expect_close(results[1], c.oracle.mean, 1e-6);
      expect_close(results.back(), c.oracle.rstd, 1e-6);
    }
}

TEST_P(NormTest, Backward) {
  struct Way {
    Addend addend;
    bool accumulate;
  };
  for (const bool layer : {true, false})
    for (const Sizes sizes : all_sizes)
      for (const Way way : {Way{Addend::none, false}, {Addend::apart, true}, {Addend::in_place, false}}) {
        const Case c(sizes, layer);
        SCOPED_TRACE(testing::Message() << (layer ? "layer " : "rms ") << sizes.rows << " x " << sizes.width);
        const auto results =
            run_on_any_threads([&](Device& device) { return backward(device, c, way.addend, way.accumulate); });
        std::vector<double> dx = c.oracle.dx, dgamma = c.oracle.dgamma, dbeta = c.oracle.dbeta;
        if (way.addend != Addend::none)
          for (size_t i = 0; i < dx.size(); ++i) dx[i] += c.addend[i];
        if (way.accumulate)
          for (size_t i = 0; i < dgamma.size(); ++i) dgamma[i] += c.beta[i], dbeta[i] += c.beta[i];
        if (sizes.width > 1) expect_close(results[0], dx, 2e-6);  // of one channel dx is nothing but rounding
        expect_close(results[1], dgamma, 2e-6, 1e-3);
        if (layer) expect_close(results[2], dbeta, 2e-6);
      }
}

TEST_P(NormTest, FarFromZero) {
  // A mean a thousand times the spread: sums of squares taken about zero would lose it.
  const auto device = make();
  Case c({2, 512}, true);
  for (float& v : c.x) v = 1000 + v / 3;
  c.oracle = Oracle(c.sizes, true, c.x, c.gamma, c.beta, c.dy);
  expect_close(forward(*device, c)[0], c.oracle.y, 1e-3);
}

TEST_P(NormTest, ConstantRowsAndNaN) {
  const auto device = make();
  Case c({3, 40}, true);
  for (size_t i = 0; i < 40; ++i) c.x[i] = 2.5f;
  c.x[85] = NAN;
  const auto y = forward(*device, c)[0];
  for (size_t i = 0; i < 40; ++i) EXPECT_FLOAT_EQ(y[i], c.beta[i]);
  for (size_t i = 40; i < 80; ++i) EXPECT_FALSE(std::isnan(y[i]));
  for (size_t i = 80; i < 120; ++i) EXPECT_TRUE(std::isnan(y[i]));
}

}  // namespace
}  // namespace strata::device
