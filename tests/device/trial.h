#pragma once
// One operation on a device, as the tests of kernels run it: give tensors their contents, run, read back. Each tensor
// is an allocation of its own, so that on the poison device each ends at an inaccessible page and starts as NaN.

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/device.h"
#include "ops/op.h"

namespace strata::device {

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::i64;
  return DType::u8;  // records
}

class Trial {
 public:
  explicit Trial(Device& device) : device_(device) {}

  /// A tensor nobody has written to.
  int empty_of(DType dtype, ops::Shape shape) {
    ops::Tensor tensor;
    tensor.name = "t" + std::to_string(tensors_.size());
    tensor.dtype = dtype;
    tensor.shape = shape;
    memories_.push_back(device_.allocate(tensor.bytes()));
    tensors_.push_back(std::move(tensor));
    return static_cast<int>(tensors_.size()) - 1;
  }
  template <typename T = float>
  int empty(ops::Shape shape) {
    const DType dtype = dtype_of<T>();
    if (dtype == DType::u8) shape = {shape.elements() * static_cast<int64_t>(sizeof(T))};
    return empty_of(dtype, shape);
  }

  template <typename T>
  int add(ops::Shape shape, const std::vector<T>& values) {
    const int index = empty<T>(shape);
    EXPECT_EQ(values.size(), static_cast<size_t>(shape.elements()));
    write(index, values);
    return index;
  }

  int inputs(const ops::StepInputs& inputs) { return add<ops::StepInputs>({1}, {inputs}); }

  template <typename T>
  void write(int index, const std::vector<T>& values) {
    device_.upload(address(index), values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }

  template <typename T = float>
  std::vector<T> read(int index) const {
    std::vector<T> values(static_cast<size_t>(tensor(index).bytes()) / sizeof(T));
    device_.download(values.data(), address(index), tensor(index).bytes());
    return values;
  }

  /// Runs `op` as the lowering would: with a workspace of just the size it asks for.
  void run(ops::Op op, const Launch& launch = {}) {
    const int64_t bytes = device_.workspace_bytes(op, tensors_);
    if (bytes > 0) op.workspace = empty<uint8_t>({bytes});
    const auto kernel = device_.prepare(op, tensors_);
    std::vector<Address> operands;
    for (int i : op.in) operands.push_back(address(i));
    for (int i : op.out) operands.push_back(address(i));
    if (op.workspace >= 0) operands.push_back(address(op.workspace));
    device_.launch(*kernel, operands, launch);
    device_.synchronise();
  }

  std::span<const ops::Tensor> tensors() const { return tensors_; }
  const ops::Tensor& tensor(int index) const { return tensors_[static_cast<size_t>(index)]; }
  Address address(int index) const { return memories_[static_cast<size_t>(index)].address(); }

 private:
  Device& device_;
  std::vector<ops::Tensor> tensors_;
  std::vector<Memory> memories_;
};

using Results = std::vector<std::vector<float>>;

/// compute(device) -> vectors, run with each number of threads: the same bits each time. Returns them.
template <typename Make, typename Compute>
auto same_on_any_threads(const Make& make, const std::vector<int>& thread_counts, const Compute& compute) {
  const auto device = make(thread_counts.front());
  const auto expected = compute(*device);
  for (size_t run = 1; run < thread_counts.size(); ++run) {
    const auto other = make(thread_counts[run]);
    const auto actual = compute(*other);
    EXPECT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].size(), expected[i].size());
      EXPECT_EQ(std::memcmp(actual[i].data(), expected[i].data(), expected[i].size() * sizeof(expected[i][0])), 0)
          << "output " << i << " with " << thread_counts[run] << " threads";
    }
  }
  return expected;
}

template <typename Make, typename Compute>
auto same_on_any_threads(const Make& make, const Compute& compute) {
  return same_on_any_threads(make, {1, 2, 3}, compute);
}

/// Tests that hold on every device: TEST_P(DeviceTest, ...). The parameter is "cpu" or "poison", with "_" and an
/// instruction set's name if not the best of this processor.
class DeviceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const size_t end = name.find('_');
    if (end == std::string::npos) return;
    const std::string set = name.substr(end + 1);
    const int64_t target = set == "avx2" ? HWY_AVX2 : set == "sse4" ? HWY_SSE4 : HWY_SCALAR;
    if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0)
      GTEST_SKIP() << "this processor has no " << set;
    hwy::SetSupportedTargetsForTest(target);
  }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  std::unique_ptr<Device> make(int threads = 2) const {
    const std::string name = GetParam();
    return name.starts_with("poison") ? make_poison(threads) : make_cpu(threads);
  }

  template <typename Compute>
  auto run_on_any_threads(const Compute& compute) const {
    const std::string name = GetParam();
    // How work is split is the same code on every device and instruction set.
    const std::vector<int> counts = name == "cpu"      ? std::vector{1, 2, 3}
                                    : name == "poison" ? std::vector{1, 2}
                                                       : std::vector{1};
    return same_on_any_threads([this](int threads) { return make(threads); }, counts, compute);
  }
};

#define STRATA_TEST_ON(suite, ...)                                \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values(__VA_ARGS__), \
                           [](const auto& chosen) { return std::string(chosen.param); })
#define STRATA_ON_EVERY_DEVICE(suite) STRATA_TEST_ON(suite, "cpu", "poison")
/// Kernels in Highway: each instruction set is other code, tails above all.
#define STRATA_ON_EVERY_TARGET(suite) \
  STRATA_TEST_ON(suite, "cpu", "poison", "poison_avx2", "poison_sse4", "poison_scalar")

inline std::vector<float> random_floats(int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(generator);
  return values;
}

inline std::vector<int32_t> random_ids(int64_t count, unsigned seed, int32_t below) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int32_t> uniform(0, below - 1);
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t& v : values) v = uniform(generator);
  return values;
}

/// |actual - expected| <= tolerance * (largest |expected| + floor), elementwise, and no NaN.
inline void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance,
                         double floor = 1e-30) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = floor;
  for (double e : expected) largest = std::max(largest, std::abs(e));
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    ASSERT_TRUE(difference <= tolerance * largest)
        << "element " << i << ": " << actual[i] << ", expected " << expected[i] << ", largest " << largest;
  }
}

template <typename T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(T)), 0) << "element " << i << ": " << a[i] << " and " << b[i];
}

}  // namespace strata::device
