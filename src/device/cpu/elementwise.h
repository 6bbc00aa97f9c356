#pragma once

#include <cstdint>

#include "device/cpu/philox.h"

namespace strata::device::cpu {

/// What all rows of one dropout share: y = x scale where the element's random word is at least `threshold`, else 0.
struct Dropout {
  uint64_t key = 0;
  PhiloxKeys keys;
  uint32_t threshold = 0;
  float scale = 1;

  Dropout(uint64_t k, uint32_t t, float s) : key(k), keys(k), threshold(t), scale(s) {}
};

}  // namespace strata::device::cpu
