// The memory-bound kernels in 16 bits: inputs that the type holds exactly, references in double, results that are the
// reference rounded or its neighbour. (fp32: the other tests of this folder.)

#include <bit>
#include <numbers>
#include <numeric>

#include "core/error.h"
#include "device/trial.h"
#include "files/number_formats.h"

namespace strata::device {
namespace {

class TypesTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(TypesTest);

constexpr DType all_types[] = {DType::bf16, DType::f16};
constexpr int64_t all_counts[] = {1, 3, 17, 32, 65, 2049, 9001};
using Words = std::vector<std::vector<uint16_t>>;

uint16_t narrow(DType type, float value) {
  return type == DType::bf16 ? files::float_to_bf16(value) : files::float_to_f16(value);
}
float widen(DType type, uint16_t bits) {
  return type == DType::bf16 ? files::bf16_to_float(bits) : files::f16_to_float(bits);
}

/// Values that the type holds exactly.
std::vector<float> values(DType type, int64_t count, unsigned seed, float spread = 1) {
  std::vector<float> floats = random_floats(count, seed, spread);
  for (float& v : floats) v = widen(type, narrow(type, v));
  return floats;
}

/// A trial whose activations and parameters are of one type.
class Lab : public Trial {
 public:
  Lab(Device& device, DType type) : Trial(device), type_(type) {}
  int put(ops::Shape shape, const std::vector<float>& floats) {
    const int index = blank(shape);
    std::vector<uint16_t> bits;
    for (float v : floats) bits.push_back(narrow(type_, v));
    write(index, bits);
    return index;
  }
  int blank(ops::Shape shape) { return empty_of(type_, shape); }
  std::vector<uint16_t> bits(int index) const { return read<uint16_t>(index); }

 private:
  DType type_;
};

/// A value's place among all of its type, so that neighbours differ by one.
int32_t place(uint16_t bits) { return (bits & 0x8000) != 0 ? -(bits & 0x7FFF) : bits; }

/// The expected values rounded, or their neighbours; or within `floor` of them, where terms cancel.
void expect_rounded(DType type, const std::vector<uint16_t>& actual, const std::vector<double>& expected,
                    double floor = 0) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double value = widen(type, actual[i]);
    if (std::abs(value - expected[i]) <= floor) continue;
    const int32_t distance = std::abs(place(actual[i]) - place(narrow(type, static_cast<float>(expected[i]))));
    ASSERT_LE(distance, 1) << "element " << i << ": " << value << ", expected " << expected[i];
  }
}

double gelu(double x, bool tanh) {
  if (!tanh) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x, bool tanh) {
  if (!tanh)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  const double k = std::sqrt(2 / std::numbers::pi), t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

ops::Op gelu_op(bool tanh, bool backward = false) {
  ops::Op op;
  op.kind = backward ? ops::Kind::gelu_backward : ops::Kind::gelu;
  op.attributes = ops::GeluAttributes{tanh};
  return op;
}

TEST_P(TypesTest, Gelu) {
  for (const DType type : all_types)
    for (const bool tanh : {false, true})
      for (const int64_t count : all_counts) {
        const auto x = values(type, count, 1, 2), dy = values(type, count, 2);
        const auto results = run_on_any_threads([&](Device& device) {
          Lab lab(device, type);
          ops::Op op = gelu_op(tanh), in_place = op;
          op.in = {lab.put({count}, x)};
          op.out = {lab.blank({count})};
          lab.run(op);
          in_place.in = in_place.out = {lab.put({count}, x)};
          lab.run(in_place);
          Words all = {lab.bits(op.out[0]), lab.bits(in_place.out[0])};
          for (const int over : {-1, 0, 1}) {
            ops::Op back = gelu_op(tanh, true);
            back.in = {lab.put({count}, dy), lab.put({count}, x)};
            back.out = {over < 0 ? lab.blank({count}) : back.in[static_cast<size_t>(over)]};
            lab.run(back);
            all.push_back(lab.bits(back.out[0]));
          }
          return all;
        });
        std::vector<double> y, dx;
        for (size_t i = 0; i < x.size(); ++i) {
          y.push_back(gelu(x[i], tanh));
          dx.push_back(dy[i] * gelu_slope(x[i], tanh));
        }
        expect_rounded(type, results[0], y, 1e-7);
        expect_same_bits(results[0], results[1]);
        expect_rounded(type, results[2], dx, 3e-4);  // near the slope's zero
        expect_same_bits(results[2], results[3]);
        expect_same_bits(results[2], results[4]);
      }
}

/// Every number the type has, but for what bf16's upper end does to the slope.
TEST_P(TypesTest, GeluOfEveryNumber) {
  const auto device = make();
  for (const DType type : all_types)
    for (const bool tanh : {false, true}) {
      std::vector<float> x;
      for (int bits = 0; bits < 0x10000; ++bits) x.push_back(widen(type, static_cast<uint16_t>(bits)));
      Lab lab(*device, type);
      const ops::Shape shape = {static_cast<int64_t>(x.size())};
      ops::Op op = gelu_op(tanh), back = gelu_op(tanh, true);
      op.in = {lab.put(shape, x)};
      op.out = {lab.blank(shape)};
      lab.run(op);
      back.in = {lab.put(shape, std::vector<float>(x.size(), 1.0f)), op.in[0]};
      back.out = {lab.blank(shape)};
      lab.run(back);
      const auto y = lab.bits(op.out[0]), slope = lab.bits(back.out[0]);
      for (size_t i = 0; i < x.size(); ++i) {
        const float value = widen(type, y[i]), at = widen(type, slope[i]);
        if (std::isnan(x[i])) {
          ASSERT_TRUE(std::isnan(value) && std::isnan(at)) << i;
        } else if (std::isinf(x[i])) {
          ASSERT_TRUE(x[i] > 0 ? value == INFINITY : !(std::abs(value) > 0)) << value;
        } else {
          expect_rounded(type, {y[i]}, {gelu(x[i], tanh)}, 1e-20);
          expect_rounded(type, {slope[i]}, {gelu_slope(x[i], tanh)}, 2e-4);
        }
        if (HasFatalFailure()) FAIL() << "of " << x[i] << (tanh ? ", tanh" : ", erf");
      }
    }
}

TEST_P(TypesTest, Swiglu) {
  for (const DType type : all_types)
    for (const int64_t width : {int64_t{1}, int64_t{17}, int64_t{64}, int64_t{2049}}) {
      const int64_t rows = 5;
      const auto x = values(type, rows * 2 * width, 3, 3), dy = values(type, rows * width, 4);
      const auto results = run_on_any_threads([&](Device& device) {
        Lab lab(device, type);
        ops::Op op{.kind = ops::Kind::swiglu}, back{.kind = ops::Kind::swiglu_backward};
        op.in = {lab.put({rows, 2 * width}, x)};
        op.out = {lab.blank({rows, width})};
        lab.run(op);
        back.in = {lab.put({rows, width}, dy), op.in[0]};
        back.out = {lab.blank({rows, 2 * width})};
        lab.run(back);
        ops::Op in_place = back;
        in_place.out = {back.in[1]};
        lab.run(in_place);
        return Words{lab.bits(op.out[0]), lab.bits(back.out[0]), lab.bits(in_place.out[0])};
      });
      std::vector<double> y, dx(x.size());
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < width; ++i) {
          const auto gate = static_cast<size_t>(row * 2 * width + i), up = gate + static_cast<size_t>(width);
          const double g = x[gate], s = 1 / (1 + std::exp(-g)), v = dy[static_cast<size_t>(row * width + i)];
          y.push_back(g * s * static_cast<double>(x[up]));
          dx[gate] = v * static_cast<double>(x[up]) * (s + g * s * (1 - s));
          dx[up] = v * g * s;
        }
      expect_rounded(type, results[0], y, 1e-7);
      expect_rounded(type, results[1], dx, 3e-3);
      expect_same_bits(results[1], results[2]);
    }
}

TEST_P(TypesTest, AddRoundsOnce) {
  for (const DType type : all_types)
    for (const int64_t count : all_counts)
      for (const size_t terms : {size_t{2}, size_t{3}}) {
        std::vector<std::vector<float>> each;
        for (unsigned i = 0; i < terms; ++i) each.push_back(values(type, count, 10 + i));
        std::vector<uint16_t> expected;
        for (size_t i = 0; i < each[0].size(); ++i) {
          float sum = each[0][i] + each[1][i];
          if (terms == 3) sum += each[2][i];
          expected.push_back(narrow(type, sum));
        }
        const auto results = run_on_any_threads([&](Device& device) {
          Lab lab(device, type);
          Words all;
          for (int over = -1; over < static_cast<int>(terms); ++over) {
            ops::Op op{.kind = ops::Kind::add};
            for (const auto& one : each) op.in.push_back(lab.put({count}, one));
            op.out = {over < 0 ? lab.blank({count}) : op.in[static_cast<size_t>(over)]};
            lab.run(op);
            all.push_back(lab.bits(op.out[0]));
          }
          return all;
        });
        for (const auto& result : results) expect_same_bits(result, expected);
      }
}

TEST_P(TypesTest, AddKeepsNaNAndInfinity) {
  const auto device = make();
  for (const DType type : all_types) {
    Lab lab(*device, type);
    std::vector<float> a(70, 1.0f), b(70, 2.0f);
    a[3] = NAN;
    a[64] = INFINITY;
    b[69] = -INFINITY;
    a[10] = b[10] = type == DType::bf16 ? 3e38f : 65504.0f;  // too much
    ops::Op op{.kind = ops::Kind::add};
    op.in = {lab.put({70}, a), lab.put({70}, b)};
    op.out = {lab.blank({70})};
    lab.run(op);
    const auto y = lab.bits(op.out[0]);
    EXPECT_TRUE(std::isnan(widen(type, y[3])));
    EXPECT_EQ(widen(type, y[64]), INFINITY);
    EXPECT_EQ(widen(type, y[69]), -INFINITY);
    EXPECT_EQ(widen(type, y[10]), INFINITY);
    EXPECT_EQ(widen(type, y[4]), 3);
  }
}

TEST_P(TypesTest, DropoutHasTheMaskOfFp32) {
  for (const DType type : all_types)
    for (const int64_t width : {int64_t{1}, int64_t{17}, int64_t{64}, int64_t{130}, int64_t{1030}}) {
      const int64_t sequence = 5, rows = 2 * sequence;
      const auto x = values(type, rows * width, 20);
      const std::vector<int64_t> ids = {int64_t{1} << 40 | 77, 12};
      const auto drop = [&](Trial& trial, int in, int out) {
        ops::Op op{.kind = ops::Kind::dropout};
        op.attributes = ops::DropoutAttributes{0.3f, 2, sequence};
        op.in = {in, trial.add({2}, ids), trial.inputs({.seed = 1234, .step = 7})};
        op.out = {out};
        trial.run(op, {.unit = 3});
      };
      const auto results = run_on_any_threads([&](Device& device) {
        Lab lab(device, type);
        const int in = lab.put({rows, width}, x), out = lab.blank({rows, width});
        drop(lab, in, out);
        drop(lab, in, in);
        return Words{lab.bits(out), lab.bits(in)};
      });
      expect_same_bits(results[0], results[1]);
      const auto device = make();
      Trial plain(*device);
      const int in = plain.add({rows, width}, x), out = plain.empty({rows, width});
      drop(plain, in, out);
      const auto y = plain.read(out);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(results[0][i], narrow(type, y[i])) << width << ", " << i;
    }
}

struct Sizes {
  int64_t rows, width;
};

TEST_P(TypesTest, Norms) {
  for (const DType type : all_types)
    for (const bool layer : {true, false})
      for (const Sizes s : {Sizes{1, 17}, {3, 3}, {5, 64}, {33, 48}, {7, 2049}, {70, 160}}) {
        const ops::Shape shape = {s.rows, s.width}, vector = {s.width}, each = {s.rows};
        const auto x = values(type, s.rows * s.width, 1, 3), dy = values(type, s.rows * s.width, 2);
        const auto addend = values(type, s.rows * s.width, 3);
        const auto gamma = values(type, s.width, 4), beta = values(type, s.width, 5);
        std::vector<double> y, mean, rstd, dx, dgamma(gamma.size()), dbeta(gamma.size());
        const auto width = static_cast<size_t>(s.width);
        for (size_t row = 0; row < static_cast<size_t>(s.rows); ++row) {
          const float *in = &x[row * width], *g = &dy[row * width];
          double m = 0, variance = 0, mean_g = 0, mean_gn = 0;
          const auto n = static_cast<double>(s.width);
          if (layer) m = std::accumulate(in, in + width, 0.0) / n;
          for (size_t i = 0; i < width; ++i) variance += (in[i] - m) * (in[i] - m) / n;
          const double r = 1 / std::sqrt(variance + static_cast<double>(1e-5f));
          mean.push_back(m);
          rstd.push_back(r);
          for (size_t i = 0; i < width; ++i) {
            const double normal = (in[i] - m) * r;
            y.push_back(normal * gamma[i] + (layer ? beta[i] : 0.0f));
            mean_g += layer ? static_cast<double>(g[i] * gamma[i]) / n : 0;
            mean_gn += static_cast<double>(g[i] * gamma[i]) * normal / n;
            dgamma[i] += g[i] * normal;
            dbeta[i] += g[i];
          }
          for (size_t i = 0; i < width; ++i)
            dx.push_back(r * (static_cast<double>(g[i] * gamma[i]) - mean_g - (in[i] - m) * r * mean_gn) +
                         addend[row * width + i]);
        }
        std::vector<float> sums;
        const auto results = run_on_any_threads([&](Device& device) {
          Lab lab(device, type);
          ops::Op op{.kind = layer ? ops::Kind::layer_norm : ops::Kind::rms_norm};
          op.attributes = ops::NormAttributes{1e-5f};
          op.in = {lab.put(shape, x), lab.put(vector, gamma)};
          if (layer) op.in.push_back(lab.put(vector, beta));
          op.out = {lab.blank(shape)};
          for (int i = 0; i < (layer ? 2 : 1); ++i) op.out.push_back(lab.empty(each));
          lab.run(op);
          ops::Op back{.kind = layer ? ops::Kind::layer_norm_backward : ops::Kind::rms_norm_backward};
          back.attributes = op.attributes;
          back.accumulate = true;
          back.in = {lab.put(shape, dy), op.in[0], op.in[1]};
          for (size_t i = 1; i < op.out.size(); ++i) back.in.push_back(op.out[i]);
          back.in.push_back(lab.put(shape, addend));
          back.out = {back.in.back()};
          for (int i = 0; i < (layer ? 2 : 1); ++i)
            back.out.push_back(lab.add(vector, std::vector<float>(gamma.size(), 1.0f)));
          lab.run(back);
          sums = lab.read(back.out[1]);
          const auto more = layer ? lab.read(back.out[2]) : sums;
          sums.insert(sums.end(), more.begin(), more.end());
          const auto statistic = lab.read(op.out.back());
          sums.insert(sums.end(), statistic.begin(), statistic.end());
          const auto* words = reinterpret_cast<const uint16_t*>(sums.data());
          return Words{lab.bits(op.out[0]), lab.bits(back.out[0]),
                       std::vector<uint16_t>(words, words + 2 * sums.size())};
        });
        SCOPED_TRACE(testing::Message() << name_of(type) << (layer ? " layer " : " rms ") << s.rows << " x "
                                        << s.width);
        expect_rounded(type, results[0], y, 3e-6);
        expect_rounded(type, results[1], dx, 1e-5);
        std::vector<float> floats(results[2].size() / 2);
        std::memcpy(floats.data(), results[2].data(), floats.size() * sizeof(float));
        std::vector<double> expected;
        for (double v : dgamma) expected.push_back(v + 1);
        for (size_t i = 0; i < dbeta.size(); ++i) expected.push_back((layer ? dbeta[i] : dgamma[i]) + 1);
        expected.insert(expected.end(), rstd.begin(), rstd.end());
        expect_close(floats, expected, 2e-6);
      }
}

TEST_P(TypesTest, Rotary) {
  for (const DType type : all_types)
    for (const int64_t dims : {2, 6, 24, 64}) {
      const int64_t sequence = 5, heads = 3, kv_heads = 2, head_dim = 70, width = 7 * head_dim, half = dims / 2;
      const auto x = values(type, 2 * sequence * width, 1);
      const auto table = random_floats(sequence * dims, 2);
      std::vector<double> expected(x.begin(), x.end());
      for (int64_t row = 0; row < 2 * sequence; ++row)
        for (int64_t head = 0; head < heads + kv_heads; ++head)
          for (int64_t i = 0; i < half; ++i) {
            const auto a = static_cast<size_t>(row * width + head * head_dim + i), b = a + static_cast<size_t>(half);
            const auto at = static_cast<size_t>(row % sequence * dims + i);
            const double c = table[at], s = table[at + static_cast<size_t>(half)];
            expected[a] = x[a] * c - x[b] * s;
            expected[b] = x[b] * c + x[a] * s;
          }
      const auto results = run_on_any_threads([&](Device& device) {
        Lab lab(device, type);
        ops::Op op{.kind = ops::Kind::rotary};
        op.attributes = ops::RotaryAttributes{heads, kv_heads, head_dim, dims, sequence, false, false};
        op.in = {lab.put({2 * sequence, width}, x), lab.add({sequence, dims}, table)};
        op.out = {lab.blank({2 * sequence, width})};
        lab.run(op);
        ops::Op in_place = op;
        in_place.out = {op.in[0]};
        lab.run(in_place);
        return Words{lab.bits(op.out[0]), lab.bits(op.in[0])};
      });
      expect_rounded(type, results[0], expected, 3e-7);
      expect_same_bits(results[0], results[1]);
    }
}

TEST_P(TypesTest, Embedding) {
  for (const DType type : all_types)
    for (const Sizes s : {Sizes{1, 1}, {5, 17}, {7, 64}, {50, 130}}) {
      const int64_t sequence = 9, tokens = 2 * sequence;
      const auto ids = random_ids(tokens, 1, static_cast<int32_t>(s.rows));
      const auto table = values(type, s.rows * s.width, 2), places = values(type, sequence * s.width, 3);
      const auto dy = values(type, tokens * s.width, 4);
      std::vector<uint16_t> copied, sums;
      std::vector<double> dtable(table.size()), dplaces(places.size());
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < s.width; ++i) {
          const auto from = static_cast<size_t>(ids[static_cast<size_t>(t)] * s.width + i);
          const auto place = static_cast<size_t>(t % sequence * s.width + i);
          copied.push_back(narrow(type, table[from]));
          sums.push_back(narrow(type, table[from] + places[place]));
          dtable[from] += dy[static_cast<size_t>(t * s.width + i)];
          dplaces[place] += dy[static_cast<size_t>(t * s.width + i)];
        }
      const auto device = make();
      Lab lab(*device, type);
      ops::Op op{.kind = ops::Kind::embedding};
      op.attributes = ops::EmbeddingAttributes{sequence};
      op.in = {lab.add({tokens}, ids), lab.put({s.rows, s.width}, table)};
      op.out = {lab.blank({tokens, s.width})};
      lab.run(op);
      expect_same_bits(lab.bits(op.out[0]), copied);
      op.in.push_back(lab.put({sequence, s.width}, places));
      lab.run(op);
      expect_same_bits(lab.bits(op.out[0]), sums);
      ops::Op back{.kind = ops::Kind::embedding_backward};
      back.attributes = op.attributes;
      back.in = {lab.put({tokens, s.width}, dy), op.in[0]};
      back.out = {lab.empty({s.rows, s.width}), lab.empty({sequence, s.width})};
      lab.run(back);
      expect_close(lab.read(back.out[0]), dtable, 1e-6);
      expect_close(lab.read(back.out[1]), dplaces, 1e-6);
    }
}

TEST_P(TypesTest, CrossEntropy) {
  for (const DType type : all_types)
    for (const Sizes s : {Sizes{1, 1}, {3, 17}, {9, 2049}, {3, 9001}}) {
      const int64_t columns = s.width + 37;
      const float scale = 8;
      auto logits = values(type, s.rows * columns, 1, 3);
      auto targets = random_ids(s.rows, 2, static_cast<int32_t>(s.width));
      if (s.rows > 2) targets[1] = -1;
      double loss = 0;
      std::vector<double> lse, dlogits;
      for (int64_t row = 0; row < s.rows; ++row) {
        float* x = &logits[static_cast<size_t>(row * columns)];
        // What grows makes the largest so far change; what padding holds does not matter.
        for (int64_t i = 0; i < s.width; ++i) x[i] = widen(type, narrow(type, x[i] + static_cast<float>(i) * 0.02f));
        for (int64_t i = s.width; i < columns; ++i) x[i] = NAN;
        const double most = *std::max_element(x, x + s.width);
        double sum = 0;
        for (int64_t i = 0; i < s.width; ++i) sum += std::exp(x[i] - most);
        lse.push_back(most + std::log(sum));
        const int32_t target = targets[static_cast<size_t>(row)];
        if (target >= 0) loss += lse.back() - x[target];
        for (int64_t i = 0; i < columns; ++i)
          dlogits.push_back(
              target < 0 || i >= s.width
                  ? 0
                  : (std::exp(x[i] - static_cast<double>(static_cast<float>(lse.back()))) - (i == target ? 1 : 0)) *
                        static_cast<double>(scale));
      }
      double measured = 0;
      std::vector<float> statistic;
      const auto results = run_on_any_threads([&](Device& device) {
        Lab lab(device, type);
        ops::Op op{.kind = ops::Kind::cross_entropy}, back{.kind = ops::Kind::cross_entropy_backward};
        op.attributes = back.attributes = ops::CrossEntropyAttributes{s.width};
        op.in = {lab.put({s.rows, columns}, logits), lab.add({s.rows}, targets)};
        op.out = {lab.empty<double>({1}), lab.empty({s.rows})};
        lab.run(op);
        measured = lab.read<double>(op.out[0])[0];
        statistic = lab.read(op.out[1]);
        back.in = {op.in[0], lab.add({s.rows}, std::vector<float>(lse.begin(), lse.end())), op.in[1],
                   lab.inputs({.grad_scale = scale})};
        back.out = {lab.blank({s.rows, columns})};
        lab.run(back);
        ops::Op in_place = back;
        in_place.out = {op.in[0]};
        lab.run(in_place);
        return Words{lab.bits(back.out[0]), lab.bits(op.in[0])};
      });
      EXPECT_NEAR(measured, loss, 5e-6 * static_cast<double>(s.rows) * std::max(1.0, lse[0]));
      for (size_t i = 0; i < lse.size(); ++i) EXPECT_NEAR(statistic[i], lse[i], 5e-6 * std::max(1.0, lse[i]));
      expect_rounded(type, results[0], dlogits, 1e-12);
      expect_same_bits(results[0], results[1]);
    }
}

TEST_P(TypesTest, NaNReachesStatisticsAndLoss) {
  const auto device = make();
  for (const DType type : all_types) {
    Lab lab(*device, type);
    std::vector<float> x(2 * 40, 0.5f);
    x[41] = NAN;
    ops::Op op{.kind = ops::Kind::rms_norm};
    op.attributes = ops::NormAttributes{};
    op.in = {lab.put({2, 40}, x), lab.put({40}, std::vector<float>(40, 1.0f))};
    op.out = {lab.blank({2, 40}), lab.empty({2})};
    lab.run(op);
    const auto y = lab.bits(op.out[0]);
    EXPECT_FALSE(std::isnan(widen(type, y[0])));
    EXPECT_TRUE(std::isnan(widen(type, y[79])));
    EXPECT_TRUE(std::isnan(lab.read(op.out[1])[1]));
    for (const float bad : {static_cast<float>(NAN), INFINITY}) {
      x[41] = bad;
      ops::Op loss{.kind = ops::Kind::cross_entropy};
      loss.attributes = ops::CrossEntropyAttributes{40};
      loss.in = {lab.put({2, 40}, x), lab.add<int32_t>({2}, {0, 0})};
      loss.out = {lab.empty<double>({1}), lab.empty({2})};
      lab.run(loss);
      EXPECT_TRUE(std::isnan(lab.read<double>(loss.out[0])[0]));
    }
  }
}

TEST_P(TypesTest, MixedTypesAreRefused) {
  const auto device = make();
  Trial trial(*device);
  const ops::Shape shape = {2, 8}, vector = {8}, each = {2};
  const int x = trial.empty_of(DType::bf16, shape), half = trial.empty_of(DType::f16, vector);
  const int gamma = trial.empty_of(DType::bf16, vector), statistic = trial.empty_of(DType::f32, each);
  const int narrow_statistic = trial.empty_of(DType::bf16, each), wide = trial.empty_of(DType::f32, shape);
  const auto refuses = [&](ops::Op op) { EXPECT_THROW((void)device->prepare(op, trial.tensors()), InternalError); };
  ops::Op op{.kind = ops::Kind::rms_norm, .in = {x, gamma}, .out = {x, statistic}, .attributes = ops::NormAttributes{}};
  EXPECT_NO_THROW((void)device->prepare(op, trial.tensors()));
  op.in[1] = half;
  refuses(op);
  op.in[1] = gamma;
  op.out[1] = narrow_statistic;
  refuses(op);
  refuses({.kind = ops::Kind::add, .in = {x, wide}, .out = {x}});
  refuses({.kind = ops::Kind::gelu, .in = {x}, .out = {wide}, .attributes = ops::GeluAttributes{}});
  const int tokens = trial.empty<int32_t>(each), table = trial.empty_of(DType::bf16, {4, 8});
  refuses({.kind = ops::Kind::embedding_backward,
           .in = {x, tokens},
           .out = {table},
           .attributes = ops::EmbeddingAttributes{2},
           .workspace = wide});
}

}  // namespace
}  // namespace strata::device
