#pragma once

#include <array>
#include <cstdint>

namespace strata::device::cpu {

/// What all rows of one dropout share: y = x scale where the element's random word is at least `threshold`, else 0.
struct Dropout {
  uint64_t key = 0;
  std::array<uint64_t, 20> round_keys{};  ///< philox's, two a round, from `key`
  uint32_t threshold = 0;
  float scale = 1;

  Dropout(uint64_t k, uint32_t t, float s) : key(k), threshold(t), scale(s) {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (size_t i = 0; i < round_keys.size(); i += 2) {
      round_keys[i] = k0;
      round_keys[i + 1] = k1;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }
};

}  // namespace strata::device::cpu
