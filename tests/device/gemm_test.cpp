// linear and its backward, against plain loops in double.

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class GemmTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(GemmTest);

struct Sizes {
  int64_t rows, inner, outer;
};
// Odd sizes; both sides of where few rows become many; sums and results longer than one piece, with a short last one.
constexpr Sizes all_sizes[] = {{1, 1, 1},    {1, 5, 3},      {2, 16, 4},     {3, 7, 9},     {5, 100, 6},
                               {4, 33, 17},  {5, 33, 17},    {17, 64, 48},   {37, 130, 70}, {64, 96, 128},
                               {1, 70, 515}, {10, 21, 1153}, {70, 37, 2500}, {6, 1537, 9},  {130, 3200, 5}};

struct Case {
  Sizes s;
  std::vector<float> x, w, b, dy, addend, dw, db;

  explicit Case(Sizes sizes)
      : s(sizes),
        x(random_floats(s.rows * s.inner, 1)),
        w(random_floats(s.outer * s.inner, 2)),
        b(random_floats(s.outer, 3, 5)),
        dy(random_floats(s.rows * s.outer, 4)),
        addend(random_floats(s.rows * s.inner, 5, 5)),
        dw(random_floats(s.outer * s.inner, 6, 5)),
        db(random_floats(s.outer, 7, 5)) {}

  /// a[r][k] and b[k][c] by callables; start[r][c] where given.
  template <typename A, typename B>
  static std::vector<double> product(int64_t rows, int64_t steps, int64_t columns, const A& a, const B& b,
                                     const std::vector<float>* start = nullptr) {
    std::vector<double> c;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < columns; ++j) {
        double sum = start != nullptr ? (*start)[static_cast<size_t>(r * columns + j)] : 0;
        for (int64_t k = 0; k < steps; ++k) sum += a(r, k) * b(k, j);
        c.push_back(sum);
      }
    return c;
  }
  auto element(const std::vector<float>& m, int64_t stride) const {
    return [&m, stride](int64_t r, int64_t c) { return static_cast<double>(m[static_cast<size_t>(r * stride + c)]); };
  }

  std::vector<double> y(bool bias) const {
    const auto ax = element(x, s.inner), aw = element(w, s.inner);
    std::vector<double> c = product(s.rows, s.inner, s.outer, ax, [&](int64_t k, int64_t j) { return aw(j, k); });
    if (bias)
      for (size_t i = 0; i < c.size(); ++i) c[i] += b[i % b.size()];
    return c;
  }
  std::vector<double> dx(bool add) const {
    return product(s.rows, s.outer, s.inner, element(dy, s.outer), element(w, s.inner), add ? &addend : nullptr);
  }
  std::vector<double> weight_gradient(bool accumulate) const {
    const auto a = element(dy, s.outer);
    return product(
        s.outer, s.rows, s.inner, [&](int64_t r, int64_t k) { return a(k, r); }, element(x, s.inner),
        accumulate ? &dw : nullptr);
  }
  std::vector<double> bias_gradient(bool accumulate) const {
    const auto one = [](int64_t, int64_t) { return 1.0; };
    return product(1, s.rows, s.outer, one, element(dy, s.outer), accumulate ? &db : nullptr);
  }

  std::vector<float> run_forward(Device& device, bool bias) const {
    Trial trial(device);
    std::vector<int> in = {trial.add({s.rows, s.inner}, x), trial.add({s.outer, s.inner}, w)};
    if (bias) in.push_back(trial.add({s.outer}, b));
    const int out = trial.empty({s.rows, s.outer});
    trial.run({.kind = ops::Kind::linear, .in = in, .out = {out}});
    return trial.read(out);
  }

  enum class Addend { none, apart, in_place };
  std::vector<float> run_input(Device& device, Addend how) const {
    Trial trial(device);
    std::vector<int> in = {trial.add({s.rows, s.outer}, dy), trial.add({s.outer, s.inner}, w)};
    if (how != Addend::none) in.push_back(trial.add({s.rows, s.inner}, addend));
    const int out = how == Addend::in_place ? in.back() : trial.empty({s.rows, s.inner});
    trial.run({.kind = ops::Kind::linear_backward_input, .in = in, .out = {out}});
    if (how == Addend::apart) expect_same_bits(trial.read(in.back()), addend);
    return trial.read(out);
  }

  Results run_weight(Device& device, bool bias, bool accumulate) const {
    Trial trial(device);
    const int from_dy = trial.add({s.rows, s.outer}, dy), from_x = trial.add({s.rows, s.inner}, x);
    std::vector<int> out = {accumulate ? trial.add({s.outer, s.inner}, dw) : trial.empty({s.outer, s.inner})};
    if (bias) out.push_back(accumulate ? trial.add({s.outer}, db) : trial.empty({s.outer}));
    trial.run({.kind = ops::Kind::linear_backward_weight,
               .in = {from_dy, from_x},
               .out = out,
               .accumulate = accumulate,
               .half = ops::Half::weight});
    Results results;
    for (int i : out) results.push_back(trial.read(i));
    return results;
  }
};

std::string describe(Sizes s) { return fmt::format("{} rows, {} x {}", s.rows, s.outer, s.inner); }

/// Rounding of a sum of n terms: about the square root of n units in the last place of the largest partial sum.
double tolerance(int64_t terms) { return 3e-7 * std::sqrt(static_cast<double>(terms) + 4); }

TEST_P(GemmTest, Forward) {
  const auto device = make();
  for (const Sizes sizes : all_sizes) {
    SCOPED_TRACE(describe(sizes));
    const Case c(sizes);
    for (const bool bias : {false, true}) expect_close(c.run_forward(*device, bias), c.y(bias), tolerance(sizes.inner));
  }
}

TEST_P(GemmTest, BackwardInput) {
  const auto device = make();
  for (const Sizes sizes : all_sizes) {
    SCOPED_TRACE(describe(sizes));
    const Case c(sizes);
    expect_close(c.run_input(*device, Case::Addend::none), c.dx(false), tolerance(sizes.outer));
    const std::vector<float> apart = c.run_input(*device, Case::Addend::apart);
    expect_close(apart, c.dx(true), tolerance(sizes.outer));
    expect_same_bits(c.run_input(*device, Case::Addend::in_place), apart);
  }
}

TEST_P(GemmTest, BackwardWeight) {
  const auto device = make();
  for (const Sizes sizes : all_sizes) {
    SCOPED_TRACE(describe(sizes));
    const Case c(sizes);
    for (const bool accumulate : {false, true}) {
      const Results both = c.run_weight(*device, true, accumulate), alone = c.run_weight(*device, false, accumulate);
      expect_close(both[0], c.weight_gradient(accumulate), tolerance(sizes.rows));
      expect_close(both[1], c.bias_gradient(accumulate), tolerance(sizes.rows));
      expect_same_bits(alone[0], both[0]);
    }
  }
}

// What may depend on the thread count is oneDNN's; with one count every run must give the same bits.
TEST_P(GemmTest, RepeatsItself) {
  for (const int threads : {1, 2}) {
    const auto device = make(threads), again = make(threads);
    const Case c({70, 130, 1500});
    expect_same_bits(c.run_forward(*device, true), c.run_forward(*again, true));
    expect_same_bits(c.run_input(*device, Case::Addend::apart), c.run_input(*again, Case::Addend::apart));
    const Results first = c.run_weight(*device, true, true), second = c.run_weight(*again, true, true);
    for (size_t i = 0; i < first.size(); ++i) expect_same_bits(first[i], second[i]);
  }
}

TEST_P(GemmTest, OwnKernelsDoNotDependOnThreads) {
  const auto make_device = [this](int threads) { return make(threads); };
  const Case few({3, 1030, 999}), many({200, 3, 1000});
  same_on_any_threads(make_device, [&](Device& device) {
    return Results{few.run_forward(device, true), many.run_weight(device, true, true)[1]};
  });
}

// Generating one token gives the bits that generating a few together gives.
TEST_P(GemmTest, FewRowsDoNotDependOnEachOther) {
  const auto device = make();
  Case all({3, 203, 30});
  const std::vector<float> expected = all.run_forward(*device, true);
  const std::vector<float> x = all.x;
  for (size_t row = 0; row < 3; ++row) {
    Case one({1, 203, 30});
    one.x.assign(x.begin() + static_cast<std::ptrdiff_t>(row) * 203,
                 x.begin() + static_cast<std::ptrdiff_t>(row + 1) * 203);
    one.w = all.w;
    one.b = all.b;
    const std::vector<float> y = one.run_forward(*device, true);
    expect_same_bits(y, std::vector<float>(expected.begin() + static_cast<std::ptrdiff_t>(row) * 30,
                                           expected.begin() + static_cast<std::ptrdiff_t>(row + 1) * 30));
  }
}

// A kernel is prepared once and run on many buffers: nothing of the first run may stick.
TEST_P(GemmTest, RunsOnOtherAddresses) {
  const auto device = make();
  const Case first({20, 40, 30}), second({20, 40, 30});
  Trial trial(*device);
  const int x = trial.add({20, 40}, first.x), w = trial.add({30, 40}, first.w), b = trial.add({30}, first.b);
  const int y = trial.empty({20, 30}), other_x = trial.add({20, 40}, first.addend),
            other_w = trial.add({30, 40}, first.dw);
  const int other_b = trial.add({30}, first.db), other_y = trial.empty({20, 30});
  ops::Op op{.kind = ops::Kind::linear, .in = {x, w, b}, .out = {y}};
  const int64_t bytes = device->workspace_bytes(op, trial.tensors());
  const int workspace = trial.empty<uint8_t>({std::max<int64_t>(bytes, 1)});
  if (bytes > 0) op.workspace = workspace;
  const auto kernel = device->prepare(op, trial.tensors());
  const auto launch = [&](const std::vector<int>& operands) {
    std::vector<Address> addresses;
    for (int i : operands) addresses.push_back(trial.address(i));
    if (bytes > 0) addresses.push_back(trial.address(workspace));
    device->launch(*kernel, addresses, {});
  };
  launch({x, w, b, y});
  launch({other_x, other_w, other_b, other_y});
  Case other({20, 40, 30});
  other.x = first.addend;
  other.w = first.dw;
  other.b = first.db;
  expect_close(trial.read(y), first.y(true), tolerance(40));
  expect_close(trial.read(other_y), other.y(true), tolerance(40));
}

TEST_P(GemmTest, RefusesShapesThatDoNotFit) {
  const auto device = make();
  Trial trial(*device);
  const int x = trial.empty({4, 6}), w = trial.empty({5, 7}), y = trial.empty({4, 5}), b = trial.empty({4});
  const int fitting = trial.empty({5, 6});
  EXPECT_THROW(trial.run({.kind = ops::Kind::linear, .in = {x, w}, .out = {y}}), InternalError);
  EXPECT_THROW(trial.run({.kind = ops::Kind::linear, .in = {x, fitting, b}, .out = {y}}), InternalError);
  EXPECT_THROW(trial.run({.kind = ops::Kind::linear_backward_input, .in = {y, w}, .out = {x}}), InternalError);
  EXPECT_THROW(trial.run({.kind = ops::Kind::linear_backward_weight, .in = {y, x}, .out = {w}}), InternalError);
}

}  // namespace
}  // namespace strata::device
