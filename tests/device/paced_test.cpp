// Devices that stand in for others: one that does nothing, one that takes its time.

#include "device/paced.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "core/error.h"
#include "device/hollow.h"

namespace strata::device {
namespace {

const std::vector<ops::Tensor> tensors = {
    {.name = "a", .shape = {4, 8}}, {.name = "b", .shape = {4, 8}}, {.name = "y", .shape = {4, 8}}};
const ops::Op add{.kind = ops::Kind::add, .in = {0, 1}, .out = {2}};
constexpr int64_t bytes = 4 * 8 * 4;

struct Operands {
  explicit Operands(Device& device) : memory(device.allocate(3 * bytes)) {
    const std::vector<float> values(2 * 4 * 8, 1.5f);
    device.upload(memory.address(), values.data(), 2 * bytes);
  }
  std::vector<Address> list() const {
    return {memory.address(), memory.address() + bytes, memory.address() + 2 * bytes};
  }
  float result(Device& device) const {
    float value = -1;
    device.download(&value, memory.address() + 2 * bytes, sizeof value);
    return value;
  }
  Memory memory;
};

TEST(Hollow, KeepsBytesAndDoesNothingElse) {
  const auto device = make_hollow(1);
  const Operands operands(*device);
  EXPECT_EQ(device->allocated_bytes(), 3 * bytes);
  const auto kernel = device->prepare(add, tensors);
  device->launch(*kernel, operands.list(), {});
  device->synchronise();
  EXPECT_EQ(operands.result(*device), 0);  // fresh memory, untouched
  float first = 0;
  device->download(&first, operands.memory.address(), sizeof first);
  EXPECT_EQ(first, 1.5f);
  device->copy(operands.memory.address() + 2 * bytes, operands.memory.address(), bytes);
  EXPECT_EQ(operands.result(*device), 0);
  // As much as 128 ranks of a small model would want, on any machine: pages that nobody writes take no memory.
  const Memory large = device->allocate(int64_t{1} << 36);
  EXPECT_EQ(device->allocated_bytes(), 3 * bytes + (int64_t{1} << 36));
  EXPECT_EQ(device->workspace_bytes(add, tensors), make_formula_planner(1)->workspace_bytes(add, tensors));
}

TEST(Paced, LastsAsLongAsItIsToldAndComputesTheSame) {
  constexpr double each = 2e-3;
  int asked = 0;
  const auto device = make_paced(make_cpu(1), [&](const ops::Op& op, std::span<const ops::Tensor> of) {
    EXPECT_EQ(op.kind, ops::Kind::add);
    EXPECT_EQ(of.size(), tensors.size());
    ++asked;
    return each;
  });
  const Operands operands(*device);
  const auto kernel = device->prepare(add, tensors);
  EXPECT_EQ(asked, 1);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) device->launch(*kernel, operands.list(), {});
  device->synchronise();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(5 * each));
  EXPECT_EQ(operands.result(*device), 3.0f);
  EXPECT_EQ(device->allocated_bytes(), 3 * bytes);
}

TEST(Paced, GivesMemoryBack) {
  const auto device = make_paced(make_hollow(1), [](const auto&, const auto&) { return 0.0; });
  { const Memory memory = device->allocate(1000); }
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_EQ(device->peak_bytes(), 1000);
  EXPECT_THROW(make_paced(make_hollow(1), [](const auto&, const auto&) { return -1.0; })->prepare(add, tensors),
               InternalError);
}

}  // namespace
}  // namespace strata::device
