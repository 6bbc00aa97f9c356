#pragma once
// How values are encoded to travel between ranks: as they are, in a narrower float type, or as 8- or 4-bit integers in
// blocks that share a scale. Sizes and names only; devices encode and decode (device.h).
//
// Integers are symmetric: scale = absmax / 127 (int8) or absmax / 7 (int4), in f32; code = x / scale, computed as
// x * (1 / scale), rounded once and kept within +-127 or +-7; decoded = code * scale. A block of zeros has scale 0; one that
// holds an infinity or a NaN has scale NaN, so that all of it decodes to NaN wherever it arrives.
//
// Rounding is to nearest, ties to even, or stochastic: up with a probability equal to the fraction (within 2^-17 of a
// step for integers, exactly for bf16 and f16; what cannot be represented above a type's largest becomes infinity).

#include <cstdint>
#include <string_view>

#include "core/types.h"

namespace strata::device {

enum class WireKind : uint8_t { raw, int8, int4 };

/// How the values of one hop travel.
///
/// Layout of n values: raw: n values of `dtype`. int8: n bytes, zeros up to a multiple of 4, then an f32 scale for each
/// begun block. int4: two to a byte, element 2k in the lower half, two's complement; zeros to a multiple of 4 bytes;
/// then the scales.
struct Wire {
  WireKind kind = WireKind::raw;
  DType dtype = DType::f32;  ///< raw: f32, bf16 or f16 whatever the source's type; i64 and f64 travel as they are
  int32_t block = 0;         ///< int8, int4: elements per scale, 2 or more (fast from 64 on); divides ops::grain
  bool stochastic = false;   ///< rounding of int8 and int4, and to bf16 and f16 from a type that holds more

  /// Bytes of n values before the scales.
  constexpr int64_t code_bytes(int64_t n) const {
    switch (kind) {
      case WireKind::int8: return round_up(n, 4);
      case WireKind::int4: return round_up(divide_up(n, 2), 4);
      case WireKind::raw: break;
    }
    return n * size_of(dtype);
  }
  /// Bytes of n encoded values.
  constexpr int64_t bytes(int64_t n) const {
    return code_bytes(n) + (kind == WireKind::raw ? 0 : divide_up(n, block) * int64_t{sizeof(float)});
  }
  /// Whether every value of type `from` arrives as it was sent.
  constexpr bool lossless(DType from) const {
    if (kind != WireKind::raw) return false;
    return dtype == from || (dtype == DType::f32 && (from == DType::bf16 || from == DType::f16));
  }
  bool operator==(const Wire&) const = default;
};

/// "int8", "int4", or the type's name.
constexpr std::string_view name_of(const Wire& wire) {
  switch (wire.kind) {
    case WireKind::int8: return "int8";
    case WireKind::int4: return "int4";
    case WireKind::raw: break;
  }
  return name_of(wire.dtype);
}

/// What stochastic rounding draws. Element i of a call takes number first + i of the stream `key`, so that the noise
/// does not depend on how a vector is cut into calls. Number j is the (j % 8)-th 16 bits of core/random.h's
/// philox(key, j / 8), lower halves of words first.
struct Noise {
  uint64_t key = 0;
  int64_t first = 0;
};

}  // namespace strata::device
