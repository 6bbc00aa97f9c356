#pragma once
// What this processor has that Highway 1.0.3 does not know of.

#include <cstdint>

namespace strata::device::cpu {

/// AVX-512's conversion of floats to bf16 (round to nearest even; numbers below 2^-126 become 0).
#if defined(__x86_64__)
inline const bool has_native_bfloat16 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
}();
#else
inline constexpr bool has_native_bfloat16 = false;
#endif

/// Where the lanes of even and odd elements, one behind the other, go: 0, 16, 1, 17, ...
struct Places {
  alignas(64) uint16_t of[32];
  constexpr Places() : of() {
    for (uint16_t i = 0; i < 32; ++i) of[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  }
};
inline constexpr Places bfloat16_places{};

/// The lower halves of 16 lanes and of another 16.
struct LowerHalves {
  alignas(64) uint16_t of[32];
  constexpr LowerHalves() : of() {
    for (uint16_t i = 0; i < 32; ++i) of[i] = static_cast<uint16_t>(2 * i);
  }
};
inline constexpr LowerHalves lower_halves{};

}  // namespace strata::device::cpu
