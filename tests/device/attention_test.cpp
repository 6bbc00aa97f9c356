// Causal attention, forward, backward and generating, against plain loops in double.

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "device/trial.h"
#include "files/number_formats.h"

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

  Oracle(Sizes s, const std::vector<float>& qkv, const std::vector<float>& dy, double scale,
         const std::vector<int32_t>& starts = {}) {
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
          const int64_t first = starts.empty() ? 0 : starts[static_cast<size_t>(row)];
          double most = -1e300, sum = 0, mean = 0;
          for (int64_t j = first; j <= i; ++j) {
            double score = 0;
            for (size_t c = 0; c < dims; ++c) score += static_cast<double>(qkv[q_at + c]) * qkv[k_at(j) + c];
            p[static_cast<size_t>(j)] = score * scale;
            most = std::max(most, score * scale);
          }
          for (int64_t j = first; j <= i; ++j) sum += std::exp(p[static_cast<size_t>(j)] - most);
          lse[static_cast<size_t>((batch * s.heads + head) * n + i)] = most + std::log(sum);
          for (int64_t j = first; j <= i; ++j) {
            double& pj = p[static_cast<size_t>(j)];
            pj = std::exp(pj - most) / sum;
            double& dpj = dp[static_cast<size_t>(j)] = 0;
            for (size_t c = 0; c < dims; ++c) {
              y[y_at + c] += pj * qkv[v_at(j) + c];
              dpj += static_cast<double>(dy[y_at + c]) * qkv[v_at(j) + c];
            }
            mean += pj * dpj;
          }
          for (int64_t j = first; j <= i; ++j) {
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

/// What a device computes with: the compute type, and where documents start, if it is told.
struct Setting {
  DType type = DType::f32;
  std::vector<int32_t> starts{};
};

/// A tensor of the compute type; reading gives floats.
int add(Trial& trial, DType type, ops::Shape shape, const std::vector<float>& values) {
  if (type == DType::f32) return trial.add(shape, values);
  const int index = trial.empty_of(type, shape);
  std::vector<std::byte> bytes(values.size() * 2);
  files::narrow(values, type, bytes);
  trial.write(index, bytes);
  return index;
}
std::vector<float> read(const Trial& trial, int index) {
  const DType type = trial.tensor(index).dtype;
  if (type == DType::f32) return trial.read(index);
  const std::vector<std::byte> bytes = trial.read<std::byte>(index);
  std::vector<float> values(bytes.size() / 2);
  files::widen(bytes, type, values);
  return values;
}
/// The values as the type holds them.
std::vector<float> rounded(std::vector<float> values, DType type) {
  if (type == DType::f32) return values;
  std::vector<std::byte> bytes(values.size() * 2);
  files::narrow(values, type, bytes);
  files::widen(bytes, type, values);
  return values;
}

/// y, lse, dqkv.
Results run(Device& device, Sizes s, const std::vector<float>& qkv, const std::vector<float>& dy,
            const Setting& setting = {}) {
  Trial trial(device);
  const ops::AttentionAttributes attributes = s.attributes();
  const int from = add(trial, setting.type, {s.tokens(), s.stride()}, qkv),
            gradient = add(trial, setting.type, {s.tokens(), s.heads * s.head_dim}, dy);
  const int y = trial.empty_of(setting.type, {s.tokens(), s.heads * s.head_dim}),
            lse = trial.empty({s.batch, s.heads, s.sequence});
  const int dqkv = trial.empty_of(setting.type, {s.tokens(), s.stride()});
  std::vector<int> forward = {from}, backward = {gradient, from, y, lse};
  if (!setting.starts.empty()) {
    forward.push_back(trial.add({s.tokens()}, setting.starts));
    backward.push_back(forward.back());
  }
  trial.run({.kind = ops::Kind::attention, .in = forward, .out = {y, lse}, .attributes = attributes});
  trial.run({.kind = ops::Kind::attention_backward, .in = backward, .out = {dqkv}, .attributes = attributes});
  return {read(trial, y), read(trial, lse), read(trial, dqkv)};
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

/// Error that one rounding to the type makes, relative to the value.
double unit_of(DType type) { return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24; }

// Inputs that the type holds exactly, so that what is measured is the kernel: products of rounded probabilities (where the
// processor multiplies in bf16) and one rounding at the end. Bounds are relative to the largest element.
TEST_P(AttentionTest, EveryComputeType) {
  const auto device = make();
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const Sizes s : all_sizes) {
      SCOPED_TRACE(describe(s) + ", " + std::string(strata::name_of(type)));
      const std::vector<float> qkv = rounded(random_qkv(s), type), dy = rounded(random_dy(s), type);
      const Oracle oracle(s, qkv, dy, static_cast<double>(s.attributes().scale));
      const Results actual = run(*device, s, qkv, dy, {type});
      expect_close(actual[0], oracle.y, 1.5 * unit_of(type));
      expect_close(actual[1], oracle.lse, 1e-6);
      // Backward starts from the rounded y: each score's gradient is off by the rounding of its row's mean.
      expect_close(actual[2], oracle.dqkv, 3 * unit_of(type));
    }
  }
}

/// Random documents: many of one token, borders anywhere; each sequence begins one.
std::vector<int32_t> random_documents(Sizes s, unsigned seed, int32_t longest) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int32_t> uniform(0, longest);
  std::vector<int32_t> starts;
  for (int64_t batch = 0; batch < s.batch; ++batch) {
    int32_t start = 0, end = 0;
    for (int32_t i = 0; i < s.sequence; ++i) {
      if (i == end) {
        start = i;
        end = i + 1 + (uniform(generator) % 3 == 0 ? 0 : uniform(generator));
      }
      starts.push_back(start);
    }
  }
  return starts;
}

TEST_P(AttentionTest, Documents) {
  const auto device = make();
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const Sizes s : {Sizes{3, 2, 1, 150, 20}, Sizes{2, 3, 3, 67, 64}, Sizes{1, 4, 2, 258, 7}}) {
      for (const int32_t longest : {0, 5, 40, 130}) {
        SCOPED_TRACE(describe(s) + ", " + std::string(strata::name_of(type)) + ", documents up to " +
                     std::to_string(longest));
        const std::vector<float> qkv = rounded(random_qkv(s), type), dy = rounded(random_dy(s), type);
        const std::vector<int32_t> starts = random_documents(s, 5, longest);
        const Oracle oracle(s, qkv, dy, static_cast<double>(s.attributes().scale), starts);
        const Results actual = run(*device, s, qkv, dy, {type, starts});
        const double unit = type == DType::f32 ? 1e-6 : unit_of(type);
        expect_close(actual[0], oracle.y, 1.5 * unit);
        expect_close(actual[1], oracle.lse, 1e-6);
        expect_close(actual[2], oracle.dqkv, 3 * unit);
      }
    }
  }
}

// A whole tile and more of keys of other documents is left out, in one sequence and not in the other; more than one chunk
// of keys in backward.
TEST_P(AttentionTest, LongDocuments) {
  const Sizes s{2, 2, 1, 1100, 8};
  const auto device = make();
  std::vector<int32_t> starts(static_cast<size_t>(s.tokens()), 0);
  for (int32_t i = 200; i < 1100; ++i) starts[static_cast<size_t>(i)] = i < 903 ? 200 : 903;
  const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
  const Oracle oracle(s, qkv, dy, static_cast<double>(s.attributes().scale), starts);
  const Results actual = run(*device, s, qkv, dy, {DType::f32, starts});
  expect_close(actual[0], oracle.y, 2e-6);
  expect_close(actual[1], oracle.lse, 2e-6);
  expect_close(actual[2], oracle.dqkv, 1e-5);
}

TEST_P(AttentionTest, OneDocumentIsNone) {
  const Sizes s{2, 4, 2, 133, 24};
  const auto device = make();
  const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
  const Results none = run(*device, s, qkv, dy);
  const Results one = run(*device, s, qkv, dy, {DType::f32, std::vector<int32_t>(static_cast<size_t>(s.tokens()), 0)});
  for (size_t i = 0; i < none.size(); ++i) expect_same_bits(none[i], one[i]);
}

// Gradients are the slopes of sum(y * dy), documents and all.
TEST_P(AttentionTest, FiniteDifferences) {
  const Sizes s{1, 2, 1, 70, 8};
  const auto device = make(1);
  const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
  for (const std::vector<int32_t>& starts : {std::vector<int32_t>{}, random_documents(s, 3, 30)}) {
    const std::vector<float> gradient = run(*device, s, qkv, dy, {DType::f32, starts})[2];
    const auto value = [&](size_t at, float step) {
      std::vector<float> moved = qkv;
      moved[at] += step;
      const std::vector<float> y = run(*device, s, moved, dy, {DType::f32, starts})[0];
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * dy[i];
      return sum;
    };
    for (size_t at = 11; at < qkv.size(); at += 181) {
      constexpr float step = 0x1p-7f;
      const double slope = (value(at, step) - value(at, -step)) / (2 * static_cast<double>(step));
      EXPECT_NEAR(gradient[at], slope, 2e-3) << at;
    }
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
  for (const Sizes s :
       {Sizes{3, 4, 2, 77, 24}, Sizes{1, 1, 1, 300, 16}, Sizes{1, 8, 8, 130, 5}, Sizes{1, 2, 1, 1090, 4}}) {
    SCOPED_TRACE(describe(s));
    const std::vector<float> qkv = random_qkv(s), dy = random_dy(s);
    run_on_any_threads([&](Device& device) { return run(device, s, qkv, dy); });
    run_on_any_threads([&](Device& device) {
      return run(device, s, qkv, dy, {DType::bf16, random_documents(s, 1, 50)});
    });
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

// A NaN or infinity in a key or value reaches the queries that see it, all of them, and no other.
TEST_P(AttentionTest, NaNShowsWhereItIsSeen) {
  const Sizes s{1, 2, 1, 150, 8};
  const auto device = make();
  std::vector<int32_t> starts(150, 0);
  for (int32_t i = 90; i < 150; ++i) starts[static_cast<size_t>(i)] = i < 103 ? 90 : 103;
  for (const std::vector<int32_t>& documents : {std::vector<int32_t>{}, starts})
    for (const int64_t at : {63, 93, 149})
      for (const bool value : {false, true})
        for (const float bad : {std::nanf(""), INFINITY}) {
          SCOPED_TRACE(testing::Message() << (documents.empty() ? "" : "documents, ") << (value ? "value " : "key ")
                                          << at << " holds " << bad);
          if (!value && std::isinf(bad)) continue;  // an infinite score may be a probability of zero
          std::vector<float> qkv = random_qkv(s);
          qkv[static_cast<size_t>(at * s.stride() + (2 + (value ? 1 : 0)) * s.head_dim)] = bad;
          const Results actual = run(*device, s, qkv, random_dy(s), {DType::f32, documents});
          const int64_t end = documents.empty() || at >= 103 ? 150 : at >= 90 ? 103 : 90;
          for (int64_t position = 0; position < s.sequence; ++position) {
            const bool sees = position >= at && position < end;
            EXPECT_EQ(!std::isfinite(actual[0][static_cast<size_t>(position * 2 * s.head_dim)]), sees) << position;
            // Nor do gradients of queries, which keys that are not seen must not reach, and of other documents' rows.
            const bool reached = documents.empty() ? position >= at : sees;
            if (!reached) {
              EXPECT_TRUE(std::isfinite(actual[2][static_cast<size_t>(position * s.stride())])) << position;
            }
            if (!documents.empty() && (position < (at >= 103 ? 103 : at >= 90 ? 90 : 0) || position >= end)) {
              for (int64_t i = 0; i < s.stride(); ++i)
                ASSERT_TRUE(std::isfinite(actual[2][static_cast<size_t>(position * s.stride() + i)])) << position;
            }
          }
        }
}

/// Feeds a sequence through a cache, `counts` tokens at a time in blocks of `rows`, and returns all outputs.
std::vector<float> generate(Device& device, Sizes s, int64_t limit, const std::vector<float>& qkv, int64_t rows,
                            const std::vector<int64_t>& counts, DType type = DType::f32) {
  const int64_t out = s.heads * s.head_dim, kv = 2 * s.kv_heads * s.head_dim;
  Trial trial(device);
  const int cache = trial.empty_of(type, {limit, kv});
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
    const int y = trial.empty_of(type, {rows, out});
    trial.run({.kind = ops::Kind::cached_attention,
               .in = {add(trial, type, {rows, s.stride()}, block), cache, trial.inputs(inputs)},
               .out = {y},
               .attributes = attributes});
    const std::vector<float> result = read(trial, y);
    all.insert(all.end(), result.begin(), result.begin() + static_cast<std::ptrdiff_t>(count * out));
    for (size_t i = static_cast<size_t>(count * out); i < result.size(); ++i)
      EXPECT_EQ(result[i], 0.0f) << "row not real";
    position += count;
    const std::vector<float> held = read(trial, cache);
    for (int64_t r = 0; r < position; ++r)
      expect_same_bits(slice(held, r * kv, kv), slice(qkv, r * s.stride() + out, kv));
  }
  return all;
}

TEST_P(AttentionTest, GeneratingGivesTheSameBits) {
  const auto device = make(1);
  for (const Sizes s : {Sizes{1, 4, 2, 75, 16}, Sizes{1, 3, 3, 75, 9}, Sizes{1, 4, 1, 75, 80}}) {
    SCOPED_TRACE(describe(s));
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const std::vector<float> qkv = rounded(random_qkv(s), type), dy = random_dy(s);
      const std::vector<float> expected = run(*device, s, qkv, dy, {type})[0];
      expect_same_bits(generate(*device, s, 75, qkv, 75, {75}, type), expected);
      expect_same_bits(generate(*device, s, 128, qkv, 1, std::vector<int64_t>(75, 1), type), expected);
      expect_same_bits(generate(*device, s, 80, qkv, 32, {32, 1, 30, 7, 5}, type), expected);
    }
  }
}

TEST_P(AttentionTest, GeneratingDoesNotDependOnThreads) {
  const Sizes s{1, 6, 3, 90, 20};
  const std::vector<float> qkv = random_qkv(s);
  run_on_any_threads([&](Device& device) { return Results{generate(device, s, 96, qkv, 64, {64, 25, 1})}; });
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
  const int half = trial.empty_of(DType::bf16, {6, 32}), starts = trial.empty<int32_t>({5});
  EXPECT_THROW(forward(half, s.attributes()), InternalError);
  EXPECT_THROW(
      trial.run({.kind = ops::Kind::attention, .in = {qkv, starts}, .out = {y, lse}, .attributes = s.attributes()}),
      InternalError);
}

// A table of documents that is wrong gives wrong numbers at most: nothing outside of the sequence is read.
TEST_P(AttentionTest, BoundsDocumentStarts) {
  const Sizes s{1, 2, 1, 70, 8};
  const auto device = make();
  std::vector<int32_t> starts(70, 0);
  starts[3] = -5;
  starts[40] = 69;
  starts[69] = 1 << 30;
  for (const std::vector<float>& result : run(*device, s, random_qkv(s), random_dy(s), {DType::f32, starts}))
    for (const float v : result) ASSERT_TRUE(std::isfinite(v));
}

// What a plan-only build answers is what the device wants.
TEST_P(AttentionTest, WorkspaceIsAFormula) {
  for (const int threads : {1, 2}) {
    const auto device = make(threads);
    const auto planner = make_formula_planner(threads);
    for (const Sizes s : {Sizes{2, 4, 2, 100, 24}, Sizes{1, 1, 1, 1200, 4}}) {
      Trial trial(*device);
      const int qkv = trial.empty({s.tokens(), s.stride()}), y = trial.empty({s.tokens(), s.heads * s.head_dim}),
                lse = trial.empty({s.batch, s.heads, s.sequence});
      const ops::Op forward{.kind = ops::Kind::attention, .in = {qkv}, .out = {y, lse}, .attributes = s.attributes()};
      const ops::Op backward{
          .kind = ops::Kind::attention_backward, .in = {y, qkv, y, lse}, .out = {qkv}, .attributes = s.attributes()};
      for (const ops::Op& op : {forward, backward}) {
        EXPECT_GT(device->workspace_bytes(op, trial.tensors()), 0);
        EXPECT_EQ(device->workspace_bytes(op, trial.tensors()), planner->workspace_bytes(op, trial.tensors()));
      }
    }
  }
}

}  // namespace
}  // namespace strata::device
