#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace strata::device::cpu {

/// What core/random.h's philox adds in each of its rounds, two numbers a round.
template <int rounds = 10>
struct PhiloxKeys {
  std::array<uint64_t, 2 * rounds> of{};

  explicit PhiloxKeys(uint64_t key) {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (size_t i = 0; i < of.size(); i += 2) {
      of[i] = k0;
      of[i + 1] = k1;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }
};

}  // namespace strata::device::cpu
