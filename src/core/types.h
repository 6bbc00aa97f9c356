#pragma once
// Element types of tensors, and how many bytes each takes.

#include <cstdint>
#include <string_view>

namespace strata {

enum class DType : uint8_t { f32, bf16, f16, f64, i64, i32, u16, i16, i8, u8 };

/// Bytes of one element.
constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
    case DType::i16: return 2;
    case DType::i8:
    case DType::u8: return 1;
  }
  return 0;
}

/// "f32", "bf16", ...: the spelling used in configs, reports and JSON.
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::f64: return "f64";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::u16: return "u16";
    case DType::i16: return "i16";
    case DType::i8: return "i8";
    case DType::u8: return "u8";
  }
  return "?";
}

/// Smallest multiple of `unit` that is at least `value`; both non-negative, `unit` > 0.
constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// ceil(a / b) for a >= 0, b > 0.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace strata
