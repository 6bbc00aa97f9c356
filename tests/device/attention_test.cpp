// Causal attention, forward, backward and generating, against plain loops in double.

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class AttentionTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(AttentionTest);

struct Sizes {
  int64_t batch, heads, kv_heads, sequence, head_dim;
  int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t tokens() const { return batch * sequence; }
  ops::AttentionAttributes attributes() const {
    return {heads, kv_heads, head_dim, sequence, 1 / std::sqrt(static_cast<float>(head_dim))};
  }
};
std::string describe(Sizes s) {
  return fmt::format("batch {}, heads {}, KV heads {}, sequence {}, head_dim {}", s.batch, s.heads, s.kv_heads,
                     s.sequence, s.head_dim);
}
// Sequences on both sides of tile borders and of groups of rows; every share of KV heads; heads of odd sizes.
constexpr Sizes all_sizes[] = {{1, 1, 1, 1, 1},     {3, 2, 1, 2, 3},    {2, 3, 3, 5, 7},   {1, 4, 2, 64, 16},
                               {1, 2, 1, 65, 8},    {2, 4, 4, 130, 20}, {1, 6, 2, 67, 80}, {1, 2, 2, 129, 96},
                               {1, 1, 1, 200, 128}, {2, 2, 2, 33, 1},   {1, 3, 1, 70, 33}, {1, 2, 2, 1, 64},
                               {2, 8, 1, 63, 32},   {1, 2, 2, 191, 64}, {1, 1, 1, 66, 259}};

/// Everything in double, scores and all.
struct Oracle {
  std::vector<double> y, lse, dqkv;

  Oracle(Sizes s, const std::vector<float>& qkv, const std::vector<float>& dy, double scale) {
    const int64_t d = s.head_dim, stride = s.stride(), n = s.sequence;
    y.resize(static_cast<size_t>(s.tokens() * s.heads * d));
    lse.resize(static_cast<size_t>(s.tokens() * s.heads));
    dqkv.resize(qkv.size());
    std::vector<double> p(static_cast<size_t>(n)), dp(p.size());
    for (int64_t batch = 0; batch < s.batch; ++batch)
      for (int64_t head = 0; head < s.heads; ++head)
        for (int64_t i = 0; i < n; ++i) {
          const int64_t kv = head / (s.heads / s.kv_heads), row = batch * n + i;
          const auto q_at = static_cast<size_t>(row * stride + head * d);
          const auto y_at = static_cast<size_t>((row * s.heads + head) * d);
          const auto k_at = [&](int64_t j) {
            return static_cast<size_t>((batch * n + j) * stride + (s.heads + kv) * d);
          };
          const auto v_at = [&](int64_t j) { return k_at(j) + static_cast<size_t>(s.kv_heads * d); };
          const auto dims = static_cast<size_t>(d);
          double most = -1e300, sum = 0, mean = 0;
          for (int64_t j = 0; j <= i; ++j) {
            double score = 0;
            for (size_t c = 0; c < dims; ++c) score += static_cast<double>(qkv[q_at + c]) * qkv[k_at(j) + c];
            p[static_cast<size_t>(j)] = score * scale;
            most = std::max(most, score * scale);
          }
          for (int64_t j = 0; j <= i; ++j) sum += std::exp(p[static_cast<size_t>(j)] - most);
          lse[static_cast<size_t>((batch * s.heads + head) * n + i)] = most + std::log(sum);
          for (int64_t j = 0; j <= i; ++j) {
            double& pj = p[static_cast<size_t>(j)];
            pj = std::exp(pj - most) / sum;
            double& dpj = dp[static_cast<size_t>(j)] = 0;
            for (size_t c = 0; c < dims; ++c) {
              y[y_at + c] += pj * qkv[v_at(j) + c];
              dpj += static_cast<double>(dy[y_at + c]) * qkv[v_at(j) + c];
            }
            mean += pj * dpj;
          }
          for (int64_t j = 0; j <= i; ++j) {
            const double pj = p[static_cast<size_t>(j)], ds = pj * (dp[static_cast<size_t>(j)] - mean) * scale;
            for (size_t c = 0; c < dims; ++c) {
              dqkv[q_at + c] += ds * qkv[k_at(j) + c];
              dqkv[k_at(j) + c] += ds * qkv[q_at + c];
              dqkv[v_at(j) + c] += pj * dy[y_at + c];
            }
          }
        }
  }
};

/// y, lse, dqkv.
Results run(Device& device, Sizes s, const std::vector<float>& qkv, const std::vector<float>& dy,
            ops::AttentionAttributes attributes) {
  Trial trial(device);
  const int from = trial.add({s.tokens(), s.stride()}, qkv),
            gradient = trial.add({s.tokens(), s.heads * s.head_dim}, dy);
  const int y = trial.empty({s.tokens(), s.heads * s.head_dim}), lse = trial.empty({s.batch, s.heads, s.sequence});
  const int dqkv = trial.empty({s.tokens(), s.stride()});
  trial.run({.kind = ops::Kind::attention, .in = {from}, .out = {y, lse}, .attributes = attributes});
  trial.run(
      {.kind = ops::Kind::attention_backward, .in = {gradient, from, y, lse}, .out = {dqkv}, .attributes = attributes});
  return {trial.read(y), trial.read(lse), trial.read(dqkv)};
}
Results run(Device& device, Sizes s, const std::vector<float>& qkv, const std::vector<float>& dy) {
  return run(device, s, qkv, dy, s.attributes());
}

std::vector<float> random_qkv(Sizes s, float scale = 1) { return random_floats(s.tokens() * s.stride(), 1, scale); }
std::vector<float> random_dy(Sizes s) { return random_floats(s.tokens() * s.heads * s.head_dim, 2); }

template <typename T>
std::vector<T> slice(const std::vector<T>& all, int64_t begin, int64_t count) {
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
  return {from, from + static_cast<std::ptrdiff_t>(count)};
}

TEST_P(AttentionTest, ForwardAndBackward) {
  const auto device = make();
  for (const Sizes s : all_sizes) {
    SCOPED_TRACE(describe(s));
    const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
    const Oracle oracle(s, qkv, dy, static_cast<double>(s.attributes().scale));
    const Results actual = run(*device, s, qkv, dy);
    expect_close(actual[0], oracle.y, 1e-6);
    expect_close(actual[1], oracle.lse, 1e-6);
    expect_close(actual[2], oracle.dqkv, 3e-6);
  }
}

TEST_P(AttentionTest, LongSequence) {
  const Sizes s{1, 2, 1, 1500, 8};
  const auto device = make();
  const std::vector<float> qkv = random_qkv(s, 2), dy = random_dy(s);
  const Oracle oracle(s, qkv, dy, static_cast<double>(s.attributes().scale));
  const Results actual = run(*device, s, qkv, dy);
  expect_close(actual[0], oracle.y, 2e-6);
  expect_close(actual[1], oracle.lse, 2e-6);
  expect_close(actual[2], oracle.dqkv, 1e-5);
}

// Scores of hundreds: probabilities underflow and running maxima jump, nothing overflows.
TEST_P(AttentionTest, LargeScores) {
  const Sizes s{1, 2, 2, 150, 16};
  const auto device = make();
  const std::vector<float> qkv = random_qkv(s, 10), dy = random_dy(s);
  const Oracle oracle(s, qkv, dy, static_cast<double>(s.attributes().scale));
  const Results actual = run(*device, s, qkv, dy);
  expect_close(actual[0], oracle.y, 5e-5);
  expect_close(actual[1], oracle.lse, 1e-6);
  expect_close(actual[2], oracle.dqkv, 1e-4);
}

TEST_P(AttentionTest, DoesNotDependOnThreads) {
  const auto make_device = [this](int threads) { return make(threads); };
  for (const Sizes s : {Sizes{3, 4, 2, 77, 24}, Sizes{1, 1, 1, 300, 16}, Sizes{1, 8, 8, 130, 5}}) {
    SCOPED_TRACE(describe(s));
    const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
    same_on_any_threads(make_device, [&](Device& device) { return run(device, s, qkv, dy); });
  }
}

// A sequence's numbers depend neither on its neighbours in the batch nor on what follows it.
TEST_P(AttentionTest, DependsOnItsOwnPastOnly) {
  const Sizes s{3, 2, 1, 100, 12};
  const auto device = make();
  const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
  const Results all = run(*device, s, qkv, dy);
  const int64_t row = s.stride(), out = s.heads * s.head_dim;
  const Sizes one{1, 2, 1, 100, 12}, shorter{1, 2, 1, 71, 12};
  const std::vector<float> second = slice(qkv, 100 * row, 100 * row), gradient = slice(dy, 100 * out, 100 * out);
  const Results alone = run(*device, one, second, gradient);
  expect_same_bits(alone[0], slice(all[0], 100 * out, 100 * out));
  expect_same_bits(alone[2], slice(all[2], 100 * row, 100 * row));
  const Results prefix = run(*device, shorter, slice(second, 0, 71 * row), slice(gradient, 0, 71 * out));
  expect_same_bits(prefix[0], slice(alone[0], 0, 71 * out));
}

TEST_P(AttentionTest, NaNShows) {
  const Sizes s{1, 1, 1, 90, 8};
  const auto device = make();
  std::vector<float> qkv = random_qkv(s);
  qkv[static_cast<size_t>(70 * s.stride() + s.head_dim)] = std::nanf("");  // in the key at position 70
  const Results actual = run(*device, s, qkv, random_dy(s));
  for (int64_t position = 0; position < s.sequence; ++position)
    EXPECT_EQ(std::isnan(actual[0][static_cast<size_t>(position * s.head_dim)]), position >= 70) << position;
}

/// Feeds a sequence through a cache, `counts` tokens at a time in blocks of `rows`, and returns all outputs.
std::vector<float> generate(Device& device, Sizes s, int64_t limit, const std::vector<float>& qkv, int64_t rows,
                            const std::vector<int64_t>& counts) {
  const int64_t out = s.heads * s.head_dim, kv = 2 * s.kv_heads * s.head_dim;
  Trial trial(device);
  const int cache = trial.empty({limit, kv});
  std::vector<float> all;
  int64_t position = 0;
  for (const int64_t count : counts) {
    std::vector<float> block = slice(qkv, position * s.stride(), count * s.stride());
    block.resize(static_cast<size_t>(rows * s.stride()), std::nanf(""));  // rows that are not real
    ops::StepInputs inputs;
    inputs.position = static_cast<int32_t>(position);
    inputs.new_tokens = static_cast<int32_t>(count);
    ops::AttentionAttributes attributes = s.attributes();
    attributes.sequence = limit;
    const int y = trial.empty({rows, out});
    trial.run({.kind = ops::Kind::cached_attention,
               .in = {trial.add({rows, s.stride()}, block), cache, trial.inputs(inputs)},
               .out = {y},
               .attributes = attributes});
    const std::vector<float> result = trial.read(y);
    all.insert(all.end(), result.begin(), result.begin() + static_cast<std::ptrdiff_t>(count * out));
    for (size_t i = static_cast<size_t>(count * out); i < result.size(); ++i)
      EXPECT_EQ(result[i], 0.0f) << "row not real";
    position += count;
    const std::vector<float> held = trial.read(cache);
    for (int64_t r = 0; r < position; ++r)
      expect_same_bits(slice(held, r * kv, kv), slice(qkv, r * s.stride() + out, kv));
  }
  return all;
}

TEST_P(AttentionTest, GeneratingGivesTheSameBits) {
  const auto device = make();
  for (const Sizes s : {Sizes{1, 4, 2, 75, 16}, Sizes{1, 3, 3, 75, 9}, Sizes{1, 4, 1, 75, 80}}) {
    SCOPED_TRACE(describe(s));
    const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
    const std::vector<float> expected = run(*device, s, qkv, dy)[0];
    expect_same_bits(generate(*device, s, 75, qkv, 75, {75}), expected);
    expect_same_bits(generate(*device, s, 128, qkv, 1, std::vector<int64_t>(75, 1)), expected);
    expect_same_bits(generate(*device, s, 80, qkv, 32, {32, 1, 30, 7, 5}), expected);
  }
}

TEST_P(AttentionTest, GeneratingDoesNotDependOnThreads) {
  const Sizes s{1, 6, 3, 90, 20};
  const std::vector<float> qkv = random_qkv(s);
  same_on_any_threads([this](int threads) { return make(threads); },
                      [&](Device& device) {
                        return Results{generate(device, s, 96, qkv, 64, {64, 25, 1})};
                      });
}

TEST_P(AttentionTest, NoNewTokens) {
  const Sizes s{1, 2, 2, 8, 4};
  const auto device = make();
  EXPECT_TRUE(generate(*device, s, 8, random_qkv(s), 3, {0}).empty());
}

TEST_P(AttentionTest, RefusesToRunPastTheCache) {
  const Sizes s{1, 2, 2, 12, 4};
  const auto device = make();
  EXPECT_THROW(generate(*device, s, 10, random_qkv(s), 6, {6, 6}), Error);
}

TEST_P(AttentionTest, RefusesShapesThatDoNotFit) {
  const auto device = make();
  Trial trial(*device);
  const Sizes s{1, 4, 2, 6, 8};
  const int qkv = trial.empty({6, s.stride()}), y = trial.empty({6, 32}), lse = trial.empty({1, 4, 6}),
            wrong = trial.empty({6, 30});
  const auto forward = [&](int to, ops::AttentionAttributes attributes) {
    trial.run({.kind = ops::Kind::attention, .in = {qkv}, .out = {to, lse}, .attributes = attributes});
  };
  EXPECT_THROW(forward(wrong, s.attributes()), InternalError);
  ops::AttentionAttributes attributes = s.attributes();
  attributes.sequence = 4;  // 6 tokens are no whole number of sequences
  EXPECT_THROW(forward(y, attributes), InternalError);
  attributes = s.attributes();
  attributes.kv_heads = 3;
  EXPECT_THROW(forward(y, attributes), InternalError);
}

// What a plan-only build answers is what the device wants.
TEST_P(AttentionTest, WorkspaceIsAFormula) {
  const auto device = make(2);
  const auto planner = make_formula_planner(2);
  Trial trial(*device);
  const Sizes s{2, 4, 2, 100, 24};
  const int qkv = trial.empty({200, s.stride()}), y = trial.empty({200, 96}), lse = trial.empty({2, 4, 100});
  const ops::Op op{.kind = ops::Kind::attention, .in = {qkv}, .out = {y, lse}, .attributes = s.attributes()};
  EXPECT_GT(device->workspace_bytes(op, trial.tensors()), 0);
  EXPECT_EQ(device->workspace_bytes(op, trial.tensors()), planner->workspace_bytes(op, trial.tensors()));
}

}  // namespace
}  // namespace strata::device
