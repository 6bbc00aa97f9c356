#include <algorithm>
#include <map>

#include "core/random.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class ElementwiseTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(ElementwiseTest);

TEST_P(ElementwiseTest, AddInPlaceOnAny) {
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{17}, int64_t{2049}, int64_t{20011}})
    for (const size_t terms : {size_t{2}, size_t{3}})
      for (int in_place = -1; in_place < static_cast<int>(terms); ++in_place) {
        std::vector<std::vector<float>> values;
        for (unsigned i = 0; i < terms; ++i) values.push_back(random_floats(count, 20 + i));
        std::vector<float> expected = values[0];
        for (size_t i = 1; i < terms; ++i)
          for (size_t j = 0; j < expected.size(); ++j) expected[j] += values[i][j];
        const auto results = run_on_any_threads([&](Device& device) {
          Trial trial(device);
          ops::Op op{.kind = ops::Kind::add};
          for (const auto& v : values) op.in.push_back(trial.add({count}, v));
          op.out = {in_place < 0 ? trial.empty({count}) : op.in[static_cast<size_t>(in_place)]};
          trial.run(op);
          return Results{trial.read(op.out[0])};
        });
        expect_same_bits(results[0], expected);
      }
}

TEST_P(ElementwiseTest, AddOfATensorToItself) {
  const auto device = make();
  Trial trial(*device);
  ops::Op op{.kind = ops::Kind::add};
  const int x = trial.add<float>({3}, {1, 2, 3});
  op.in = {x, x};
  op.out = {x};
  trial.run(op);
  expect_same_bits(trial.read(x), {2, 4, 6});
}

TEST_P(ElementwiseTest, FillZeroOfAnyType) {
  for (const int64_t count : {int64_t{1}, int64_t{17}, int64_t{100003}, int64_t{3200017}}) {
    const auto device = make(3);
    Trial trial(*device);
    const int floats = trial.empty({count}), longs = trial.empty<int64_t>({count});
    for (const int y : {floats, longs}) {
      ops::Op op{.kind = ops::Kind::fill_zero};
      op.out = {y};
      trial.run(op);
    }
    EXPECT_EQ(trial.read(floats), std::vector<float>(static_cast<size_t>(count)));
    EXPECT_EQ(trial.read<int64_t>(longs), std::vector<int64_t>(static_cast<size_t>(count)));
  }
}

struct Drop {
  int64_t batch = 1, sequence = 1, width = 1;
  float probability = 0.1f;
  uint32_t site = 0;
  std::vector<int64_t> sequence_ids = {0};
  ops::StepInputs inputs = {.seed = 1234, .step = 7};
  Launch launch = {.unit = 3};
};

std::vector<float> drop(Device& device, const Drop& c, const std::vector<float>& x, bool in_place = false) {
  Trial trial(device);
  const ops::Shape shape = {c.batch * c.sequence, c.width};
  ops::Op op{.kind = ops::Kind::dropout};
  op.attributes = ops::DropoutAttributes{c.probability, c.site, c.sequence};
  op.in = {trial.add(shape, x), trial.add({c.batch}, c.sequence_ids), trial.inputs(c.inputs)};
  op.out = {in_place ? op.in[0] : trial.empty(shape)};
  trial.run(op, c.launch);
  return trial.read(op.out[0]);
}

std::vector<float> ones(const Drop& c) {
  return std::vector<float>(static_cast<size_t>(c.batch * c.sequence * c.width), 1.0f);
}

std::vector<bool> mask(Device& device, const Drop& c) {
  std::vector<bool> kept;
  for (float v : drop(device, c, ones(c))) kept.push_back(v != 0);
  return kept;
}

TEST_P(ElementwiseTest, DropoutMatchesPhilox) {
  for (const int64_t width : {int64_t{1}, int64_t{3}, int64_t{17}, int64_t{64}, int64_t{130}, int64_t{2049}}) {
    const Drop c = {.batch = 2,
                    .sequence = 5,
                    .width = width,
                    .probability = 0.3f,
                    .site = 2,
                    .sequence_ids = {int64_t{1} << 40 | 77, 12}};
    const auto x = random_floats(10 * width, 30);
    const Random4 mixed = philox(c.inputs.seed, c.inputs.step, uint64_t{3} << 32 | 2);
    const uint64_t key = uint64_t{mixed[1]} << 32 | mixed[0];
    std::vector<double> expected;
    for (int64_t row = 0; row < 10; ++row)
      for (int64_t channel = 0; channel < width; ++channel) {
        const auto id = static_cast<uint64_t>(c.sequence_ids[static_cast<size_t>(row / 5)]);
        const int64_t number = channel / 64 * 32 + channel % 32;
        const Random4 words =
            philox<7>(key, static_cast<uint64_t>(row % 5) << 32 | static_cast<uint64_t>(number / 4), id);
        const uint32_t bits = words[static_cast<size_t>(number % 4)] >> (channel % 64 < 32 ? 0 : 16) & 0xffff;
        const double dropped = 19661;  // 0.3 of 2^16
        const double scaled = x[static_cast<size_t>(row * width + channel)] / (1 - dropped / 65536);
        expected.push_back(bits >= dropped ? scaled : 0);
      }
    const auto results = run_on_any_threads([&](Device& device) {
      return Results{drop(device, c, x), drop(device, c, x, true)};
    });
    expect_close(results[0], expected, 1e-7);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(results[0][i] == 0, expected[i] == 0) << i;
    expect_same_bits(results[0], results[1]);
  }
}

TEST_P(ElementwiseTest, DropoutKeepsTheRightShare) {
  const auto device = make();
  for (const float p : {0.0f, 1e-6f, 0.1f, 0.5f, 0.9f}) {
    const Drop c = {.batch = 4, .sequence = 50, .width = 512, .probability = p, .sequence_ids = {0, 1, 2, 3}};
    const auto y = drop(*device, c, ones(c));
    double sum = 0;
    int64_t kept = 0;
    // Probabilities come in steps of 2^-16; the scale is of the one taken, so that the mean is exact.
    const auto scale = static_cast<float>(65536 / (65536 - std::round(static_cast<double>(p) * 65536)));
    for (float v : y) {
      ASSERT_TRUE(v == 0 || v == scale) << v;
      kept += v != 0;
      sum += v;
    }
    const auto n = static_cast<double>(y.size());
    // Six standard deviations of a binomial.
    const double deviation = std::sqrt(n * static_cast<double>(p) * (1 - static_cast<double>(p)));
    EXPECT_NEAR(static_cast<double>(kept), n * (1 - static_cast<double>(p)), 6 * deviation + 1e-9);
    EXPECT_NEAR(sum / n, 1, 0.06);
    if (p < 1e-5f) {
      EXPECT_EQ(y, ones(c));
    }
  }
}

/// Shares of neighbours kept together: independent channels, positions and sequences.
TEST_P(ElementwiseTest, DropoutIsUncorrelated) {
  const auto device = make();
  const Drop c = {.batch = 2, .sequence = 64, .width = 512, .probability = 0.5f, .sequence_ids = {5, 6}};
  const auto kept = mask(*device, c);
  const auto agree = [&](size_t distance) {
    int64_t same = 0;
    for (size_t i = 0; i + distance < kept.size(); ++i) same += kept[i] == kept[i + distance];
    return static_cast<double>(same) / static_cast<double>(kept.size() - distance);
  };
  for (const size_t distance :
       {size_t{1}, size_t{2}, size_t{4}, size_t{31}, size_t{32}, size_t{33}, size_t{64}, size_t{512}, size_t{64 * 512}})
    EXPECT_NEAR(agree(distance), 0.5, 0.015) << distance;
}

TEST_P(ElementwiseTest, DropoutDependsOnItsNamesAndNothingElse) {
  const auto device = make();
  const Drop base = {.batch = 1, .sequence = 8, .width = 256, .probability = 0.5f, .sequence_ids = {42}};
  std::vector<Drop> changed(5, base);
  changed[0].inputs.seed = 1235;
  changed[1].inputs.step = 8;
  changed[2].launch.unit = 4;
  changed[3].site = 1;
  changed[4].sequence_ids = {43};
  const auto reference = mask(*device, base);
  for (size_t i = 0; i < changed.size(); ++i) {
    const auto other = mask(*device, changed[i]);
    int64_t same = 0;
    for (size_t j = 0; j < reference.size(); ++j) same += reference[j] == other[j];
    EXPECT_NEAR(static_cast<double>(same) / static_cast<double>(reference.size()), 0.5, 0.06) << "change " << i;
  }
  // What does not name the element changes nothing: values, micro-batch, rates, place of the sequence in the batch.
  Drop same = base;
  same.launch.micro_batch = 9;
  same.inputs.grad_scale = 3;
  same.inputs.learning_rate = 1;
  EXPECT_EQ(mask(*device, same), reference);
  Drop batch = base;
  batch.batch = 3;
  batch.sequence_ids = {7, 42, 8};
  const auto wide = mask(*device, batch);
  EXPECT_TRUE(std::equal(reference.begin(), reference.end(), wide.begin() + static_cast<int64_t>(reference.size())));
  // Backward: the same operation on dy zeroes the same elements.
  const auto x = random_floats(8 * 256, 31);
  const auto dx = drop(*device, base, x);
  for (size_t j = 0; j < reference.size(); ++j) ASSERT_EQ(dx[j] != 0, reference[j]);
}

}  // namespace
}  // namespace strata::device
