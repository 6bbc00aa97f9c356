#pragma once
// What an operation costs, from its shapes alone: the simulator prices it, the report counts it.

#include <cstdint>
#include <span>

#include "ops/op.h"

namespace strata::ops {

struct Cost {
  double flops = 0;       ///< multiply and add count as two; attention's masked half is not counted
  double gemm_flops = 0;  ///< the part of `flops` done by matrix products (linears and attention)
  double bytes = 0;       ///< read and written once each, were the cache perfect
  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    gemm_flops += other.gemm_flops;
    bytes += other.bytes;
    return *this;
  }
};

Cost cost(const Op& op, std::span<const Tensor> tensors);

}  // namespace strata::ops
