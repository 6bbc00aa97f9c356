#include "files/number_formats.h"

#include <cstring>

#include "core/error.h"

namespace strata::files {

void narrow(std::span<const float> values, DType dtype, std::span<std::byte> to) {
  STRATA_CHECK(static_cast<int64_t>(to.size()) == static_cast<int64_t>(values.size()) * size_of(dtype));
  if (dtype == DType::f32) {
    std::memcpy(to.data(), values.data(), to.size());
    return;
  }
  STRATA_CHECK(dtype == DType::bf16 || dtype == DType::f16, "{}", name_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = dtype == DType::bf16 ? float_to_bf16(values[i]) : float_to_f16(values[i]);
    std::memcpy(to.data() + 2 * i, &bits, 2);
  }
}

void widen(std::span<const std::byte> from, DType dtype, std::span<float> values) {
  STRATA_CHECK(static_cast<int64_t>(from.size()) == static_cast<int64_t>(values.size()) * size_of(dtype));
  if (dtype == DType::f32) {
    std::memcpy(values.data(), from.data(), from.size());
    return;
  }
  STRATA_CHECK(dtype == DType::bf16 || dtype == DType::f16, "{}", name_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from.data() + 2 * i, 2);
    values[i] = dtype == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
}

}  // namespace strata::files
