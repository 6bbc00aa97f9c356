#pragma once

#include <cstdint>
#include <span>

#include "device/device.h"

namespace strata::device::cpu {

inline constexpr size_t most_levels = 8;  ///< that a sum is bracketed by

/// What Device::reduce is told, widths of 1 left out.
struct Reduction {
  Wire wire;
  std::span<const Address> sources;
  std::span<const int64_t> widths;
  int64_t own;
  DType own_dtype;
  int64_t count;
  DType y_dtype;
  void* y;
  bool accumulate;
};

}  // namespace strata::device::cpu
