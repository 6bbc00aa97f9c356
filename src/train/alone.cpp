#include "train/alone.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "core/random.h"
#include "ops/cost.h"

namespace strata::train {

namespace {

ops::Tensor tensor(DType dtype, ops::Shape shape) { return {.name = "product", .dtype = dtype, .shape = shape}; }

/// Bytes that are a small number in any of the three types, one pattern a tensor.
void fill(device::Device& device, device::Address address, int64_t bytes, DType dtype) {
  std::vector<uint16_t> halves(static_cast<size_t>(std::min<int64_t>(bytes, int64_t{1} << 20) / 2));
  for (size_t i = 0; i < halves.size(); ++i) {
    const uint16_t random = static_cast<uint16_t>(philox(7, i)[0]);
    // Sign and fraction are random, the exponent is that of 1/4 to 1/2; of an fp32 every second half is its fraction.
    const bool fraction = dtype == DType::f32 && i % 2 == 0;
    halves[i] = fraction              ? random
                : dtype == DType::f16 ? static_cast<uint16_t>(0x3400u | (random & 0x83ffu))
                                      : static_cast<uint16_t>(0x3e80u | (random & 0x807fu));
  }
  const auto piece = static_cast<int64_t>(halves.size() * 2);
  for (int64_t at = 0; at < bytes; at += piece) device.upload(address + at, halves.data(), std::min(piece, bytes - at));
}

/// The sizes of a product; as y = x w^T, what is timed for attention.
struct Product {
  int64_t rows, inner, outer;
  DType compute;
  auto operator<=>(const Product&) const = default;
};

double seconds_of(device::Device& device, const Product& p, int runs = 5) {
  return seconds_alone(device, {.kind = ops::Kind::linear, .in = {0, 1}, .out = {2}},
                       {tensor(p.compute, {p.rows, p.inner}), tensor(p.compute, {p.outer, p.inner}),
                        tensor(p.compute, {p.rows, p.outer})},
                       runs);
}

}  // namespace

double seconds_alone(device::Device& device, ops::Op op, std::vector<ops::Tensor> tensors, int runs) {
  if (const int64_t workspace = device.workspace_bytes(op, tensors); workspace > 0) {
    op.workspace = static_cast<int>(tensors.size());
    tensors.push_back(tensor(DType::u8, {workspace}));
  }
  std::vector<device::Memory> memories;
  for (const ops::Tensor& t : tensors) {
    memories.push_back(device.allocate(t.bytes()));
    fill(device, memories.back().address(), t.bytes(), t.dtype);
  }
  std::vector<device::Address> operands;
  const auto add = [&](int t) { operands.push_back(memories[static_cast<size_t>(t)].address()); };
  for (int t : op.in) add(t);
  for (int t : op.out) add(t);
  if (op.workspace >= 0) add(op.workspace);
  const auto kernel = device.prepare(op, tensors);
  double best = 1e30;
  for (int run = 0; run <= runs; ++run) {  // the first warms up
    const auto begin = std::chrono::steady_clock::now();
    device.launch(*kernel, operands, {});
    device.synchronise();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (run > 0) best = std::min(best, seconds);
  }
  return best;
}

double measure_product_rate(device::Device& device, DType compute) {
  constexpr int64_t n = 1024;
  return 2.0 * static_cast<double>(n * n * n) / seconds_of(device, {n, n, n, compute}, 20);
}

std::string product_rate_name(DType compute) {
  const std::string_view name = compute == DType::f32 ? "fp32" : compute == DType::f16 ? "fp16" : "bf16";
  return fmt::format("the best {} product of 1024 x 1024 matrices, measured at the start", name);
}

ProductsAlone products_alone(const step::Program& program, device::Device& device) {
  std::vector<int64_t> runs(program.blocks.size());
  for (const step::Task& task : program.tasks)
    if (const auto* compute = std::get_if<step::Compute>(&task.work)) ++runs[static_cast<size_t>(compute->block)];

  std::map<std::tuple<ops::Kind, bool, Product>, double> linears;  // seconds of one
  std::map<Product, double> squares;                               // of attention
  const auto square = [&](const Product& p) {
    auto [at, fresh] = squares.try_emplace(p, 0);
    if (fresh) at->second = seconds_of(device, p);
    return at->second;
  };
  ProductsAlone all;
  for (size_t b = 0; b < program.blocks.size(); ++b)
    for (const ops::Op& op : program.blocks[b].ops) {
      const auto& tensors = program.blocks[b].tensors;
      const auto operand = [&](int t) -> const ops::Tensor& { return tensors[static_cast<size_t>(t)]; };
      const auto times = static_cast<double>(runs[b]);
      if (ops::cost(op, tensors).gemm_flops == 0) continue;
      all.flops += ops::cost(op, tensors).gemm_flops * times;
      switch (op.kind) {
        case ops::Kind::linear:
        case ops::Kind::linear_backward_input:
        case ops::Kind::linear_backward_weight: {
          const ops::Tensor &x = operand(op.in[0]), &w = operand(op.in[1]);
          const Product key{x.shape[0], x.shape[1], w.shape[0] * w.shape[1], x.dtype};
          auto [at, fresh] = linears.try_emplace({op.kind, op.accumulate, key}, 0);
          if (fresh) {
            // The product itself: no bias, nothing added but what the accumulators hold.
            ops::Op bare{.kind = op.kind, .in = {0, 1}, .out = {2}, .accumulate = op.accumulate};
            at->second = seconds_alone(device, bare, {operand(op.in[0]), operand(op.in[1]), operand(op.out[0])});
          }
          all.seconds += at->second * times;
          break;
        }
        case ops::Kind::attention:
        case ops::Kind::attention_backward: {
          const auto& a = op.as<ops::AttentionAttributes>();
          const DType compute = operand(op.out[0]).dtype;
          const double scores = square({a.sequence, a.head_dim, a.sequence, compute});
          const double values = square({a.sequence, a.sequence, a.head_dim, compute});
          const auto s = static_cast<double>(a.sequence);
          const double heads = static_cast<double>(operand(op.in[0]).shape[0]) / s * static_cast<double>(a.heads);
          // Forward: scores, and values weighted by them. Backward: scores again and their gradient; then q, k and v's.
          const double each = op.kind == ops::Kind::attention ? scores + values : 2 * scores + 3 * values;
          all.seconds += each * heads * (s + 1) / (2 * s) * times;
          break;
        }
        default: break;
      }
    }
  return all;
}

}  // namespace strata::train
