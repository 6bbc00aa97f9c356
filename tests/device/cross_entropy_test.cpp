#include <algorithm>

#include "core/error.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class CrossEntropyTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(CrossEntropyTest);

struct Case {
  int64_t tokens, vocab, columns;
  std::vector<float> logits;
  std::vector<int32_t> targets;
  double loss = 0;
  std::vector<double> lse, dlogits;
  static constexpr float grad_scale = 0.25f;

  Case(int64_t t, int64_t v, int64_t c, float spread = 3)
      : tokens(t),
        vocab(v),
        columns(c),
        logits(random_floats(t * c, 1, spread)),
        targets(random_ids(t, 2, static_cast<int32_t>(v))) {
    if (tokens > 2) targets[1] = -1;
    if (tokens > 4) targets[static_cast<size_t>(tokens) - 1] = -100;
    // What padding columns hold must not matter.
    for (int64_t row = 0; row < tokens; ++row)
      for (int64_t i = vocab; i < columns; ++i) logits[at(row, i)] = i % 2 == 0 ? NAN : 1e30f;
    for (int64_t row = 0; row < tokens; ++row) {
      double most = -INFINITY, sum = 0;
      for (int64_t i = 0; i < vocab; ++i) most = std::max(most, static_cast<double>(logits[at(row, i)]));
      for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[at(row, i)]) - most);
      lse.push_back(most + std::log(sum));
      const int32_t target = targets[static_cast<size_t>(row)];
      if (target >= 0) loss += lse.back() - static_cast<double>(logits[at(row, target)]);
      for (int64_t i = 0; i < columns; ++i) {
        double d = 0;
        if (target >= 0 && i < vocab)
          d = (std::exp(static_cast<double>(logits[at(row, i)]) - lse.back()) - (i == target ? 1 : 0)) *
              static_cast<double>(grad_scale);
        dlogits.push_back(d);
      }
    }
  }
  size_t at(int64_t row, int64_t column) const { return static_cast<size_t>(row * columns + column); }
};

std::vector<std::vector<double>> forward(Device& device, const Case& c) {
  Trial trial(device);
  ops::Op op{.kind = ops::Kind::cross_entropy};
  op.attributes = ops::CrossEntropyAttributes{c.vocab};
  op.in = {trial.add({c.tokens, c.columns}, c.logits), trial.add({c.tokens}, c.targets)};
  op.out = {trial.empty<double>({1}), trial.empty({c.tokens})};
  trial.run(op);
  const auto lse = trial.read(op.out[1]);
  return {trial.read<double>(op.out[0]), std::vector<double>(lse.begin(), lse.end())};
}

std::vector<float> backward(Device& device, const Case& c, bool in_place) {
  Trial trial(device);
  const ops::Shape shape = {c.tokens, c.columns};
  ops::Op op{.kind = ops::Kind::cross_entropy_backward};
  op.attributes = ops::CrossEntropyAttributes{c.vocab};
  op.in = {trial.add(shape, c.logits), trial.add({c.tokens}, std::vector<float>(c.lse.begin(), c.lse.end())),
           trial.add({c.tokens}, c.targets), trial.inputs({.grad_scale = Case::grad_scale})};
  op.out = {in_place ? op.in[0] : trial.empty(shape)};
  trial.run(op);
  return trial.read(op.out[0]);
}

TEST_P(CrossEntropyTest, ForwardAndBackward) {
  for (const Case& c : {Case(1, 1, 1), Case(1, 3, 128), Case(3, 17, 17), Case(17, 100, 128), Case(9, 2049, 2176),
                        Case(5, 50257, 50304)}) {
    SCOPED_TRACE(testing::Message() << c.tokens << " x " << c.vocab << " of " << c.columns);
    const auto results = run_on_any_threads([&](Device& device) { return forward(device, c); });
    EXPECT_NEAR(results[0][0], c.loss, 2e-7 * static_cast<double>(c.tokens));
    for (size_t i = 0; i < c.lse.size(); ++i) EXPECT_NEAR(results[1][i], c.lse[i], 1e-6);
    const auto gradients = run_on_any_threads([&](Device& device) {
      return Results{backward(device, c, false), backward(device, c, true)};
    });
    expect_close(gradients[0], c.dlogits, 2e-6, 1e-3);
    expect_same_bits(gradients[0], gradients[1]);
    for (size_t i = 0; i < c.dlogits.size(); ++i)
      if (c.dlogits[i] == 0) {
        ASSERT_EQ(gradients[0][i], 0) << i;
      }
  }
}

TEST_P(CrossEntropyTest, LargeAndFarApartLogits) {
  const auto device = make();
  for (const float offset : {0.0f, 1e4f, -1e4f}) {
    Case c(2, 40, 40, 100);
    for (float& v : c.logits) v += offset;
    c.logits[3] = -INFINITY;
    Case again = c;
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < 40; ++i) most = std::max(most, static_cast<double>(c.logits[static_cast<size_t>(i)]));
    for (int i = 0; i < 40; ++i) sum += std::exp(static_cast<double>(c.logits[static_cast<size_t>(i)]) - most);
    EXPECT_NEAR(forward(*device, c)[1][0], most + std::log(sum), 1e-6 * std::abs(most));
  }
}

TEST_P(CrossEntropyTest, NothingCounts) {
  const auto device = make();
  Case c(4, 10, 16);
  std::fill(c.targets.begin(), c.targets.end(), -1);
  EXPECT_EQ(forward(*device, c)[0][0], 0);
  for (float v : backward(*device, c, false)) EXPECT_EQ(v, 0);
}

TEST_P(CrossEntropyTest, NaNReachesTheLoss) {
  const auto device = make();
  for (const float bad : {static_cast<float>(NAN), INFINITY})
    for (const size_t column : {size_t{0}, size_t{20}, size_t{39}}) {
      Case c(2, 40, 64);
      c.logits[column] = bad;
      EXPECT_TRUE(std::isnan(forward(*device, c)[0][0])) << column;
    }
}

TEST_P(CrossEntropyTest, LogitsOfMinusInfinityCountAsNothing) {
  const auto device = make();
  // Some, all of the first and of a later stretch longer than any tile, and all but one.
  for (const auto& [first, last, step] : {std::tuple{0, 3000, 7}, {0, 1500, 1}, {1200, 2700, 1}, {0, 2999, 1}}) {
    Case c(1, 3000, 3072);
    c.targets[0] = 2999;
    double sum = 0;
    for (int i = first; i < last; i += step)
      if (i != 2999) c.logits[static_cast<size_t>(i)] = -INFINITY;
    for (size_t i = 0; i < 3000; ++i) sum += std::exp(static_cast<double>(c.logits[i]));
    const double lse = std::log(sum);
    const auto found = forward(*device, c);
    EXPECT_NEAR(found[1][0], lse, 1e-6) << first << " to " << last;
    EXPECT_NEAR(found[0][0], lse - static_cast<double>(c.logits[2999]), 1e-6);
  }
}

TEST_P(CrossEntropyTest, RefusesTargetsPastTheVocabulary) {
  const auto device = make();
  Case c(3, 10, 16);
  c.targets[2] = 10;  // a padding column
  EXPECT_THROW(forward(*device, c), Error);
  EXPECT_THROW(backward(*device, c, false), Error);
}

}  // namespace
}  // namespace strata::device
