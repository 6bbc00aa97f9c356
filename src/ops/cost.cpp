#include "ops/cost.h"

namespace strata::ops {

namespace {

double elements(int tensor, std::span<const Tensor> tensors) {
  return static_cast<double>(tensors[static_cast<size_t>(tensor)].shape.elements());
}

/// One causal product of scores: each of S rows meets (S + 1) / 2 positions on average.
double causal_product(const AttentionAttributes& a, double tokens) {
  const double pairs = tokens * (static_cast<double>(a.sequence) + 1) / 2;
  return 2 * pairs * static_cast<double>(a.heads * a.head_dim);
}

}  // namespace

Cost cost(const Op& op, std::span<const Tensor> tensors) {
  Cost cost;
  for (int t : op.in) cost.bytes += static_cast<double>(tensors[static_cast<size_t>(t)].bytes());
  for (int t : op.out) {
    const Tensor& tensor = tensors[static_cast<size_t>(t)];
    cost.bytes += static_cast<double>(tensor.bytes()) * (updates_output(op, tensor) ? 2 : 1);
  }
  const auto shape = [&](int t) { return tensors[static_cast<size_t>(t)].shape; };
  switch (op.kind) {
    case Kind::linear: {
      const Shape x = shape(op.in[0]), w = shape(op.in[1]);
      cost.gemm_flops = 2.0 * static_cast<double>(x[0]) * static_cast<double>(w[0]) * static_cast<double>(w[1]);
      break;
    }
    case Kind::linear_backward_input: {
      const Shape dy = shape(op.in[0]), w = shape(op.in[1]);
      cost.gemm_flops = 2.0 * static_cast<double>(dy[0]) * static_cast<double>(w[0]) * static_cast<double>(w[1]);
      break;
    }
    case Kind::linear_backward_weight: {
      const Shape dy = shape(op.in[0]), x = shape(op.in[1]);
      cost.gemm_flops = 2.0 * static_cast<double>(dy[0]) * static_cast<double>(dy[1]) * static_cast<double>(x[1]);
      break;
    }
    case Kind::attention:  // scores and weighted values
      cost.gemm_flops = 2 * causal_product(op.as<AttentionAttributes>(), static_cast<double>(shape(op.in[0])[0]));
      break;
    case Kind::attention_backward:  // scores again, then dv, dp, dq, dk
      cost.gemm_flops = 5 * causal_product(op.as<AttentionAttributes>(), static_cast<double>(shape(op.in[0])[0]));
      break;
    case Kind::cached_attention: {  // at most: every new token meets the whole cache
      const auto& a = op.as<AttentionAttributes>();
      cost.gemm_flops = 4.0 * static_cast<double>(shape(op.in[0])[0] * a.sequence * a.heads * a.head_dim);
      break;
    }
    // Bandwidth-bound kinds: a rough count of arithmetic per element of the largest operand; bytes decide their time.
    case Kind::layer_norm:
    case Kind::rms_norm: cost.flops = 8 * elements(op.in[0], tensors); break;
    case Kind::layer_norm_backward:
    case Kind::rms_norm_backward: cost.flops = 14 * elements(op.in[0], tensors); break;
    case Kind::gelu:
    case Kind::swiglu: cost.flops = 12 * elements(op.out[0], tensors); break;
    case Kind::gelu_backward:
    case Kind::swiglu_backward: cost.flops = 20 * elements(op.out[0], tensors); break;
    case Kind::cross_entropy:
    case Kind::cross_entropy_backward: cost.flops = 6 * elements(op.in[0], tensors); break;
    case Kind::adamw: cost.flops = 14 * elements(op.in[0], tensors); break;
    case Kind::rotary:
    case Kind::add:
    case Kind::dropout:
    case Kind::grad_norm: cost.flops = 2 * elements(op.in[0], tensors); break;
    case Kind::embedding:
    case Kind::embedding_backward:  // touched rows only, not the whole table
      cost.bytes = 2 * static_cast<double>(
                           tensors[static_cast<size_t>(op.kind == Kind::embedding ? op.out[0] : op.in[0])].bytes());
      break;
    case Kind::fill_zero:
    case Kind::clip: break;
  }
  cost.flops += cost.gemm_flops;
  return cost;
}

}  // namespace strata::ops
