#include <csignal>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class MemoryTest : public DeviceTest {};
STRATA_ON_EVERY_DEVICE(MemoryTest);

TEST_P(MemoryTest, CountsExactly) {
  const auto device = make();
  EXPECT_EQ(device->allocated_bytes(), 0);
  {
    const Memory a = device->allocate(1);
    Memory b = device->allocate(12345);
    EXPECT_EQ(device->allocated_bytes(), 12346);
    const Memory c = std::move(b);
    EXPECT_EQ(device->allocated_bytes(), 12346);
    EXPECT_EQ(c.bytes(), 12345);
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_EQ(device->peak_bytes(), 12346);
  const Memory d = device->allocate(5);
  EXPECT_EQ(device->peak_bytes(), 12346);
}

TEST_P(MemoryTest, AddressesAreAlignedAndDistinct) {
  const auto device = make();
  std::vector<Memory> memories;
  for (int64_t bytes : {0, 1, 63, 64, 65, 4095, 4096, 4097, 0}) {
    memories.push_back(device->allocate(bytes));
    EXPECT_TRUE(static_cast<bool>(memories.back().address()));
    EXPECT_EQ(memories.back().address().value() % alignment, 0u);
    for (size_t i = 0; i + 1 < memories.size(); ++i) EXPECT_FALSE(memories[i].address() == memories.back().address());
  }
}

TEST_P(MemoryTest, MovesBytes) {
  const auto device = make();
  // Over a mebibyte, so that host copies are split between threads.
  const int64_t bytes = (int64_t{3} << 20) + 17;
  std::vector<unsigned char> pattern(static_cast<size_t>(bytes));
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
  const Memory a = device->allocate(bytes), b = device->allocate(bytes);
  device->upload(a.address(), pattern.data(), bytes);
  device->copy(b.address(), a.address(), bytes);
  std::vector<unsigned char> back(pattern.size());
  device->download(back.data(), b.address(), bytes);
  EXPECT_EQ(back, pattern);
  device->fill_zero(b.address() + 5, bytes - 10);
  device->download(back.data(), b.address(), bytes);
  EXPECT_EQ(std::accumulate(back.begin() + 5, back.end() - 5, 0), 0);
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 5, pattern.begin()));
  EXPECT_TRUE(std::equal(back.end() - 5, back.end(), pattern.end() - 5));
  // Overlapping, both ways.
  for (int64_t shift : {int64_t{1}, int64_t{1} << 20}) {
    device->upload(a.address(), pattern.data(), bytes);
    device->copy(a.address() + shift, a.address(), bytes - shift);
    device->download(back.data(), a.address(), bytes);
    EXPECT_TRUE(std::equal(back.begin() + shift, back.end(), pattern.begin()));
    device->upload(a.address(), pattern.data(), bytes);
    device->copy(a.address(), a.address() + shift, bytes - shift);
    device->download(back.data(), a.address(), bytes);
    EXPECT_TRUE(std::equal(back.begin(), back.end() - shift, pattern.begin() + shift));
  }
}

TEST_P(MemoryTest, SaysHowMuchItCouldNotGet) {
  const auto device = make();
  try {
    const Memory memory = device->allocate(int64_t{1} << 60);
    FAIL() << "got an exabyte";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 3);
    EXPECT_NE(std::string(error.what()).find("cannot allocate"), std::string::npos) << error.what();
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST_P(MemoryTest, DescribesItself) {
  const std::string text = make(2)->description();
  EXPECT_NE(text.find("cpu ("), std::string::npos) << text;
  EXPECT_NE(text.find("2 threads"), std::string::npos) << text;
}

/// Writes one byte at an offset from its first operand.
class Poke final : public Kernel {
 public:
  explicit Poke(int64_t offset) : offset_(offset) {}
  void run(std::span<const Address> operands, const Launch&) override {
    *reinterpret_cast<volatile char*>(operands[0].value() + static_cast<uintptr_t>(offset_)) = 0;
  }

 private:
  int64_t offset_;
};

unsigned char peek(Address address) { return *reinterpret_cast<const volatile unsigned char*>(address.value()); }

using PoisonDeathTest = testing::Test;

TEST(PoisonDeathTest, HostAccessFaults) {
  const auto device = make_poison(1);
  const Memory memory = device->allocate(1000);
  device->fill_zero(memory.address(), 1000);
  EXPECT_DEATH(peek(memory.address()), "");
  EXPECT_DEATH(peek(memory.address() + 999), "");
  EXPECT_DEATH(Poke(0).run(std::vector<Address>{memory.address()}, {}), "");
}

TEST(PoisonDeathTest, KernelsReachTheirOperandsOnly) {
  const auto device = make_poison(1);
  const Memory memory = device->allocate(128), other = device->allocate(128);
  Poke inside(127);
  device->launch(inside, std::vector<Address>{memory.address()}, {});
  // The first byte past the end is on the guard page, as 128 is a multiple of the alignment.
  Poke past(128);
  EXPECT_DEATH(device->launch(past, std::vector<Address>{memory.address()}, {}), "");
  Poke stray(static_cast<int64_t>(other.address().value()) - static_cast<int64_t>(memory.address().value()));
  EXPECT_DEATH(device->launch(stray, std::vector<Address>{memory.address()}, {}), "");
}

TEST(Poison, FindsWritesInTheSlack) {
  const auto device = make_poison(1);
  Memory memory = device->allocate(100);  // ends 28 bytes before the guard page
  Poke past(100), before(-1), inside(99);
  EXPECT_THROW(device->launch(past, std::vector<Address>{memory.address()}, {}), InternalError);
  memory = device->allocate(100);
  EXPECT_THROW(device->launch(before, std::vector<Address>{memory.address()}, {}), InternalError);
  memory = device->allocate(100);
  device->launch(inside, std::vector<Address>{memory.address()}, {});
}

TEST(Poison, RefusesBytesOutsideAnAllocation) {
  const auto device = make_poison(1);
  const Memory memory = device->allocate(100);
  char buffer[200] = {};
  EXPECT_THROW(device->upload(memory.address(), buffer, 101), InternalError);
  EXPECT_THROW(device->download(buffer, memory.address() + 1, 100), InternalError);
  EXPECT_THROW(device->fill_zero(memory.address() + (-1), 1), InternalError);
  EXPECT_THROW(device->upload(Address(reinterpret_cast<uintptr_t>(buffer)), buffer, 1), InternalError);
  device->upload(memory.address(), buffer, 100);
}

TEST(Poison, FreshMemoryIsNotANumber) {
  const auto device = make_poison(1);
  const Memory memory = device->allocate(64);
  std::vector<float> floats(16);
  std::vector<double> doubles(8);
  device->download(floats.data(), memory.address(), 64);
  device->download(doubles.data(), memory.address(), 64);
  for (float f : floats) EXPECT_TRUE(std::isnan(f));
  for (double f : doubles) EXPECT_TRUE(std::isnan(f));
}

TEST(Planner, AsksWhatTheDeviceAsks) {
  const auto device = make_cpu(2);
  const auto planner = make_formula_planner(2);
  std::vector<ops::Tensor> tensors(8);
  for (ops::Tensor& tensor : tensors) tensor.shape = {100, 48};
  ops::Op op{.kind = ops::Kind::layer_norm_backward};
  op.in = {0, 1, 2, 3, 4};
  op.out = {5, 6, 7};
  const int64_t bytes = planner->workspace_bytes(op, tensors);
  EXPECT_EQ(bytes, 4 * 2 * 48 * 4);  // 100 rows are 4 chunks, each with two sums of a row's width
  EXPECT_EQ(device->workspace_bytes(op, tensors), bytes);
}

}  // namespace
}  // namespace strata::device
