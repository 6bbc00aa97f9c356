#pragma once

namespace strata::device::cpu {

/// The scalars of one AdamW step, worked out once for all elements.
struct AdamW {
  float gradient_scale = 1;                             ///< clip factor / loss scale
  float beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0;     ///< rest = 1 - beta
  float step = 0, inverse_root_bias2 = 1, epsilon = 0;  ///< step = rate / bias1
  float decay = 0;                                      ///< rate * weight decay
};

}  // namespace strata::device::cpu
