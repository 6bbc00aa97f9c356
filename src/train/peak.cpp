#include "train/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace strata::train {

double measure_product_rate(device::Device& device) {
  constexpr int64_t n = 1024;
  std::vector<ops::Tensor> tensors = {
      {.name = "x", .shape = {n, n}}, {.name = "w", .shape = {n, n}}, {.name = "y", .shape = {n, n}}};
  ops::Op op{.kind = ops::Kind::linear, .in = {0, 1}, .out = {2}};
  const int64_t workspace = device.workspace_bytes(op, tensors), matrix = n * n * size_of(DType::f32);
  if (workspace > 0) {
    op.workspace = 3;
    tensors.push_back({.name = "workspace", .dtype = DType::u8, .shape = {workspace}});
  }
  const device::Memory memory = device.allocate(3 * matrix + workspace);
  device.fill_zero(memory.address(), memory.bytes());
  const auto kernel = device.prepare(op, tensors);
  std::vector<device::Address> operands;
  for (size_t i = 0; i < tensors.size(); ++i) operands.push_back(memory.address() + static_cast<int64_t>(i) * matrix);
  double best = 1e30;
  for (int round = 0; round < 10; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    device.launch(*kernel, operands, {});
    device.synchronise();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return 2.0 * static_cast<double>(n * n * n) / best;
}

}  // namespace strata::train
