#include "core/random.h"

#include <xxhash.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace strata {

uint64_t random_key(uint64_t seed, std::string_view name) { return XXH64(name.data(), name.size(), seed); }

double normal(uint64_t key, uint64_t index) {
  // One counter gives four words: two 64-bit uniforms, hence one pair of normals, cosine and sine.
  const Random4 r = philox(key, index / 2);
  const double u1 = (static_cast<double>((uint64_t{r[0]} << 21) ^ (r[1] >> 11)) + 0.5) * 0x1p-53;
  const double u2 = static_cast<double>((uint64_t{r[2]} << 21) ^ (r[3] >> 11)) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(u1)), angle = 2.0 * std::numbers::pi * u2;
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

Permutation::Permutation(uint64_t key, int64_t size) : key_(key), size_(static_cast<uint64_t>(size)) {
  STRATA_CHECK(size > 0);
  const int bits = std::max(2, static_cast<int>(std::bit_width(size_ - 1)));
  half_bits_ = (bits + 1) / 2;
}

int64_t Permutation::operator()(int64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const Random4 r = philox(key_, right, round);
      const uint64_t f = (uint64_t{r[0]} << 32 | r[1]) & mask;
      const uint64_t next = left ^ f;
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

}  // namespace strata
