// linear and its backward in 16 bits: values that are exact in the type, products against plain loops in double, results
// rounded once.

#include <cmath>

#include "device/trial.h"
#include "files/number_formats.h"

namespace strata::device {
namespace {

struct Sizes {
  int64_t rows, inner, outer;
};
constexpr Sizes all_sizes[] = {{1, 5, 3},     {2, 40, 9},   {4, 33, 17},  {5, 33, 17},    {17, 64, 48},
                               {37, 130, 70}, {9, 600, 37}, {6, 1600, 9}, {10, 21, 1601}, {70, 37, 900}};

class GemmTypesTest : public testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  /// Half the distance between neighbours, relative to the smaller one, at most.
  double half_unit() const { return type() == DType::bf16 ? 0x1p-8 : 0x1p-11; }

  /// Random values that the type holds exactly.
  std::vector<float> values(int64_t count, unsigned seed) const {
    std::vector<float> floats = random_floats(count, seed);
    std::vector<std::byte> bytes(floats.size() * 2);
    files::narrow(floats, type(), bytes);
    files::widen(bytes, type(), floats);
    return floats;
  }
  int add(Trial& trial, ops::Shape shape, const std::vector<float>& floats) const {
    const int index = trial.empty_of(type(), shape);
    std::vector<std::byte> bytes(floats.size() * 2);
    files::narrow(floats, type(), bytes);
    trial.write(index, bytes);
    return index;
  }
  std::vector<float> read(const Trial& trial, int index) const {
    const std::vector<std::byte> bytes = trial.read<std::byte>(index);
    std::vector<float> floats(bytes.size() / 2);
    files::widen(bytes, type(), floats);
    return floats;
  }

  /// Each element is its exact value rounded: one rounding, and sums in fp32.
  void expect_rounded(const std::vector<float>& actual, const std::vector<double>& exact,
                      const std::vector<double>& magnitude) const {
    ASSERT_EQ(actual.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i)
      ASSERT_LE(std::abs(static_cast<double>(actual[i]) - exact[i]),
                std::abs(exact[i]) * half_unit() * 1.001 + magnitude[i] * 0x1p-20 + 0x1p-25)
          << "element " << i << " of " << exact[i];
  }
};

INSTANTIATE_TEST_SUITE_P(, GemmTypesTest, testing::Values(DType::bf16, DType::f16),
                         [](const auto& chosen) { return std::string(name_of(chosen.param)); });

TEST_P(GemmTypesTest, ForwardRoundsOnce) {
  for (const Sizes& s : all_sizes)
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.rows << " x " << s.inner << " x " << s.outer);
      const auto x = values(s.rows * s.inner, 1), w = values(s.outer * s.inner, 2), b = values(s.outer, 3);
      std::vector<double> exact, magnitude;
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t o = 0; o < s.outer; ++o) {
          double sum = bias ? static_cast<double>(b[static_cast<size_t>(o)]) : 0, size = std::abs(sum);
          for (int64_t k = 0; k < s.inner; ++k) {
            const double term = static_cast<double>(x[static_cast<size_t>(r * s.inner + k)]) *
                                static_cast<double>(w[static_cast<size_t>(o * s.inner + k)]);
            sum += term, size += std::abs(term);
          }
          exact.push_back(sum), magnitude.push_back(size);
        }
      for (int threads : {1, 2}) {
        const auto device = make_poison(threads);
        Trial trial(*device);
        std::vector<int> in = {add(trial, {s.rows, s.inner}, x), add(trial, {s.outer, s.inner}, w)};
        if (bias) in.push_back(add(trial, {s.outer}, b));
        const int y = trial.empty_of(type(), {s.rows, s.outer});
        trial.run({.kind = ops::Kind::linear, .in = in, .out = {y}});
        expect_rounded(read(trial, y), exact, magnitude);
      }
    }
}

TEST_P(GemmTypesTest, BackwardInputAddsBeforeItRounds) {
  for (const Sizes& s : all_sizes)
    for (const int addend : {0, 1, 2}) {  // none, apart, in place
      SCOPED_TRACE(testing::Message() << s.rows << " x " << s.inner << " x " << s.outer << ", addend " << addend);
      const auto dy = values(s.rows * s.outer, 1), w = values(s.outer * s.inner, 2), a = values(s.rows * s.inner, 3);
      std::vector<double> exact, magnitude;
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t i = 0; i < s.inner; ++i) {
          double sum = addend ? static_cast<double>(a[static_cast<size_t>(r * s.inner + i)]) : 0, size = std::abs(sum);
          for (int64_t o = 0; o < s.outer; ++o) {
            const double term = static_cast<double>(dy[static_cast<size_t>(r * s.outer + o)]) *
                                static_cast<double>(w[static_cast<size_t>(o * s.inner + i)]);
            sum += term, size += std::abs(term);
          }
          exact.push_back(sum), magnitude.push_back(size);
        }
      const auto device = make_poison(2);
      Trial trial(*device);
      std::vector<int> in = {add(trial, {s.rows, s.outer}, dy), add(trial, {s.outer, s.inner}, w)};
      if (addend) in.push_back(add(trial, {s.rows, s.inner}, a));
      const int dx = addend == 2 ? in.back() : trial.empty_of(type(), {s.rows, s.inner});
      trial.run({.kind = ops::Kind::linear_backward_input, .in = in, .out = {dx}});
      expect_rounded(read(trial, dx), exact, magnitude);
    }
}

TEST_P(GemmTypesTest, WeightGradientsAreFp32) {
  for (const Sizes& s : all_sizes)
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.rows << " x " << s.inner << " x " << s.outer);
      const auto dy = values(s.rows * s.outer, 1), x = values(s.rows * s.inner, 2);
      const auto dw_before = random_floats(s.outer * s.inner, 3), db_before = random_floats(s.outer, 4);
      std::vector<double> dw, db;
      for (int64_t o = 0; o < s.outer; ++o) {
        double bias = accumulate ? static_cast<double>(db_before[static_cast<size_t>(o)]) : 0;
        for (int64_t r = 0; r < s.rows; ++r) bias += static_cast<double>(dy[static_cast<size_t>(r * s.outer + o)]);
        db.push_back(bias);
        for (int64_t i = 0; i < s.inner; ++i) {
          double sum = accumulate ? static_cast<double>(dw_before[static_cast<size_t>(o * s.inner + i)]) : 0;
          for (int64_t r = 0; r < s.rows; ++r)
            sum += static_cast<double>(dy[static_cast<size_t>(r * s.outer + o)]) *
                   static_cast<double>(x[static_cast<size_t>(r * s.inner + i)]);
          dw.push_back(sum);
        }
      }
      const auto device = make_poison(2);
      Trial trial(*device);
      const std::vector<int> in = {add(trial, {s.rows, s.outer}, dy), add(trial, {s.rows, s.inner}, x)};
      const std::vector<int> out = {trial.add({s.outer, s.inner}, dw_before), trial.add({s.outer}, db_before)};
      trial.run({.kind = ops::Kind::linear_backward_weight, .in = in, .out = out, .accumulate = accumulate});
      expect_close(trial.read(out[0]), dw, 2e-6);
      expect_close(trial.read(out[1]), db, 2e-6);
    }
}

}  // namespace
}  // namespace strata::device
