#pragma once
// What this processor has that Highway 1.0.3 does not know of.

#include <bit>
#include <cstddef>
#include <cstdint>

namespace strata::device::cpu {

/// AVX-512's conversion of floats to bf16 (round to nearest even; numbers below 2^-126 become 0).
#if defined(__x86_64__)
inline const bool has_native_bfloat16 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
}();
/// AVX-512's look-up of bytes in tables.
inline const bool has_byte_tables = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vbmi") != 0;
}();
#else
inline constexpr bool has_native_bfloat16 = false, has_byte_tables = false;
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

/// Where 32 4-bit codes go, a 16-bit word each: in order, or elements i and 16 + i in the lower and upper half of lane i.
struct Nibbles {
  alignas(64) uint8_t bytes[64];    ///< which byte of 16 goes where, for each 128 bits apart
  alignas(64) uint16_t shifts[32];  ///< what brings a word's code down
  explicit constexpr Nibbles(bool halves) : bytes(), shifts() {
    for (size_t word = 0; word < 32; ++word) {
      const size_t element = halves ? word / 2 + word % 2 * 16 : word;
      bytes[2 * word] = static_cast<uint8_t>(element / 4 * 2);
      bytes[2 * word + 1] = static_cast<uint8_t>(element / 4 * 2 + 1);
      shifts[word] = static_cast<uint16_t>(element % 4 * 4);
    }
  }
};
inline constexpr Nibbles in_order(false), in_halves(true);

/// What 4-bit codes stand for, 0 .. 7, -8 .. -1, as bf16, twice.
struct CodeValues {
  alignas(64) uint16_t of[32];
  constexpr CodeValues() : of() {
    for (int i = 0; i < 32; ++i) {
      const int code = i % 16 < 8 ? i % 16 : i % 16 - 16;
      of[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(code)) >> 16);
    }
  }
};
inline constexpr CodeValues code_values{};

}  // namespace strata::device::cpu
