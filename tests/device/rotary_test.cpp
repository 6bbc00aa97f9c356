#include "core/error.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class RotaryTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(RotaryTest);

struct Sizes {
  int64_t batch, sequence, heads, kv_heads, head_dim, rotary_dims;
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t tokens() const { return batch * sequence; }
};
constexpr Sizes all_sizes[] = {
    {1, 1, 1, 1, 2, 2},    {2, 3, 2, 2, 8, 8},  {1, 5, 4, 1, 16, 4},  {2, 7, 6, 2, 96, 24},
    {3, 17, 8, 2, 64, 64}, {1, 3, 3, 3, 10, 6}, {2, 9, 4, 4, 34, 34}, {1, 2, 2, 1, 8, 0},
};

std::vector<float> table_of(int64_t positions, int64_t rotary_dims) {
  std::vector<float> table;
  const int64_t half = rotary_dims / 2;
  const auto angle = [&](int64_t p, int64_t i) {
    return static_cast<double>(p + 1) * std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
  };
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) table.push_back(static_cast<float>(std::cos(angle(p, i))));
    for (int64_t i = 0; i < half; ++i) table.push_back(static_cast<float>(std::sin(angle(p, i))));
  }
  return table;
}

std::vector<double> oracle(const Sizes& s, const std::vector<float>& x, const std::vector<float>& table, bool inverse,
                           const auto& position_of) {
  std::vector<double> y(x.begin(), x.end());
  const auto width = static_cast<size_t>(s.width()), half = static_cast<size_t>(s.rotary_dims / 2);
  for (size_t t = 0; t < x.size() / width; ++t) {
    const int64_t position = position_of(static_cast<int64_t>(t));
    if (position < 0) continue;
    for (size_t head = 0; head < static_cast<size_t>(s.heads + s.kv_heads); ++head)
      for (size_t i = 0; i < half; ++i) {
        const size_t a = t * width + head * static_cast<size_t>(s.head_dim) + i, b = a + half;
        const double c = table[static_cast<size_t>(position) * 2 * half + i];
        const double n = table[static_cast<size_t>(position) * 2 * half + half + i] * (inverse ? -1.0 : 1.0);
        y[a] = x[a] * c - x[b] * n;
        y[b] = x[b] * c + x[a] * n;
      }
  }
  return y;
}

ops::RotaryAttributes attributes(const Sizes& s, bool inverse, bool cached = false) {
  return {s.heads, s.kv_heads, s.head_dim, s.rotary_dims, s.sequence, inverse, cached};
}

TEST_P(RotaryTest, TurnsAndTurnsBack) {
  for (const Sizes& s : all_sizes) {
    SCOPED_TRACE(testing::Message() << "head_dim " << s.head_dim << ", " << s.rotary_dims << " turned");
    const auto x = random_floats(s.tokens() * s.width(), 1);
    if (s.rotary_dims == 0) continue;
    const auto table = table_of(s.sequence + 2, s.rotary_dims);
    for (const bool inverse : {false, true}) {
      const auto results = run_on_any_threads([&](Device& device) {
        Trial trial(device);
        const ops::Shape shape = {s.tokens(), s.width()};
        ops::Op op{.kind = ops::Kind::rotary};
        op.attributes = attributes(s, inverse);
        op.in = {trial.add(shape, x), trial.add({s.sequence + 2, s.rotary_dims}, table)};
        op.out = {trial.empty(shape)};
        trial.run(op);
        ops::Op in_place = op;
        in_place.out = {op.in[0]};
        trial.run(in_place);
        ops::Op back = op;
        back.attributes = attributes(s, !inverse);
        back.in[0] = op.in[0];
        back.out = {op.in[0]};
        auto turned = trial.read(op.in[0]);
        trial.run(back);
        return Results{trial.read(op.out[0]), turned, trial.read(op.in[0])};
      });
      expect_close(results[0], oracle(s, x, table, inverse, [&](int64_t t) { return t % s.sequence; }), 1e-6);
      expect_same_bits(results[0], results[1]);
      expect_close(results[2], std::vector<double>(x.begin(), x.end()), 1e-6);
    }
  }
}

TEST_P(RotaryTest, WhileGeneratingPositionsStartAtTheFirstNewToken) {
  const auto device = make();
  const Sizes s = {1, 0, 4, 2, 16, 8};
  const int64_t rows = 5, limit = 12;
  const auto x = random_floats(rows * s.width(), 2), table = table_of(limit, s.rotary_dims);
  for (const bool in_place : {false, true}) {
    Trial trial(*device);
    ops::Op op{.kind = ops::Kind::rotary};
    op.attributes = attributes(s, false, true);
    const ops::Shape shape = {rows, s.width()};
    op.in = {trial.add(shape, x), trial.add({limit, s.rotary_dims}, table),
             trial.inputs({.position = 9, .new_tokens = 3})};
    op.out = {in_place ? op.in[0] : trial.empty(shape)};
    trial.run(op);
    // Rows past the real ones are left as they came: their positions are past the table.
    expect_close(trial.read(op.out[0]), oracle(s, x, table, false, [](int64_t t) { return t < 3 ? t + 9 : -1; }), 1e-6);
    const std::vector<ops::StepInputs> too_far = {{.position = 9, .new_tokens = 4}};
    trial.write(op.in[2], too_far);
    EXPECT_THROW(trial.run(op), Error);
  }
}

}  // namespace
}  // namespace strata::device
