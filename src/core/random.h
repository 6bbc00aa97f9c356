#pragma once
// Counter-based random numbers: every value is a pure function of (key, counter), so initial weights, dropout masks and
// data order never depend on ranks, threads or history.
//
// Generator: Philox4x32 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11) with 10 rounds,
// its authors' choice; 7 are the fewest that passed all of TestU01's BigCrush there.

#include <array>
#include <cstdint>
#include <string_view>

namespace strata {

using Random4 = std::array<uint32_t, 4>;

/// 128 random bits for a 64-bit key and a 128-bit counter.
template <int rounds = 10>
constexpr Random4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  Random4 c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
               static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < rounds; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Key of a named stream under a seed.
uint64_t random_key(uint64_t seed, std::string_view name);

/// Uniform in [0, 1), 24 bits.
constexpr float uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

/// Element `index` of a stream of standard normals (Box-Muller on Philox, in double).
double normal(uint64_t key, uint64_t index);

/// A pseudo-random permutation of [0, size) without a table: four-round Feistel network on the index, walked until it
/// lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class Permutation {
 public:
  Permutation(uint64_t key, int64_t size);
  int64_t operator()(int64_t index) const;

 private:
  uint64_t key_;
  uint64_t size_;
  int half_bits_;
};

}  // namespace strata
