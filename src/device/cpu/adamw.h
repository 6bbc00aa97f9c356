#pragma once

#include <cstdint>
#include <span>

#include "core/types.h"
#include "ops/op.h"

namespace strata::device::cpu {

/// The scalars of one AdamW step, worked out once for all elements.
struct AdamW {
  float gradient_scale = 1;                             ///< clip factor / loss scale
  float beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0;     ///< rest = 1 - beta
  float step = 0, inverse_root_bias2 = 1, epsilon = 0;  ///< step = rate / bias1
  float decay = 0;                                      ///< rate * weight decay
};

/// What one AdamW step works on.
struct AdamWOperands {
  const float* gradient = nullptr;
  float* weights = nullptr;
  void *moment1 = nullptr, *moment2 = nullptr;  ///< f32, or codes if block > 0
  float *scale1 = nullptr, *scale2 = nullptr;   ///< if block > 0
  void* copy = nullptr;                         ///< may be null
  DType copy_type = DType::f32;
  int64_t block = 0;
  std::span<const ops::DecayRange> ranges;  ///< ascending, not overlapping
};

}  // namespace strata::device::cpu
