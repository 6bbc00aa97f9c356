#pragma once
// 16-bit floating point as bit patterns: bfloat16 (the upper half of a float) and IEEE 754 binary16.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/types.h"

namespace strata::files {

constexpr float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Nearest, ties to even; NaN stays NaN (made quiet), overflow becomes infinity.
constexpr uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu, mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Subnormal: mantissa x 2^-24, exact in a float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

/// Nearest, ties to even; NaN stays NaN (made quiet), overflow becomes infinity.
constexpr uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((bits >> 13) & 0x3FFu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 2^16 and above
  if (magnitude >= 0x38800000u) {                                              // 2^-14 and above: normal
    const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);    // a carry may reach infinity, rightly
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  if (magnitude < 0x33000000u) return sign;  // below 2^-25: nearest is zero
  // Subnormal: the significand shifted to units of 2^-24.
  const uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t shift = 126u - (magnitude >> 23);
  const uint32_t whole = significand >> shift, rest = significand & ((1u << shift) - 1u), half = 1u << (shift - 1u);
  return static_cast<uint16_t>(sign | (whole + (rest > half || (rest == half && (whole & 1u) != 0) ? 1u : 0u)));
}

/// Values as f32, bf16 or f16; `to` has as many bytes as they take.
void narrow(std::span<const float> values, DType dtype, std::span<std::byte> to);
/// The other way; `from` may lie at any address.
void widen(std::span<const std::byte> from, DType dtype, std::span<float> values);

}  // namespace strata::files
