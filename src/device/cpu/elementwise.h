#pragma once

#include <cstdint>

#include "device/cpu/philox.h"

namespace strata::device::cpu {

/// What all rows of one dropout share: y = x scale where the element's 16 random bits are at least `threshold`, else 0.
///
/// Channel c has half (c / 32) % 2, the lower one first, of word 32 (c / 64) + c % 32 of its row's; four words share a
/// counter (word / 4, position, sequence id). So the halves of a vector of words belong to two vectors of elements.
struct Dropout {
  static constexpr int rounds = 7;      ///< of philox, for `key`
  static constexpr int64_t block = 64;  ///< channels whose words lie together
  uint64_t key = 0;
  PhiloxKeys<rounds> keys;
  uint32_t threshold = 0;  ///< in the upper half, of 2^16
  float scale = 1;

  Dropout(uint64_t k, uint32_t t, float s) : key(k), keys(k), threshold(t << 16), scale(s) {}
};

}  // namespace strata::device::cpu
