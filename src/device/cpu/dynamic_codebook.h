#pragma once
// The 256 values that a byte of 8-bit Adam's state may stand for, times its block's scale: bitsandbytes' dynamic map
// (create_dynamic_map with 7 exponent bits of 8; Dettmers et al., arXiv 2110.02861). For each decade 10^(i-6), i = 0 to 6,
// the interval from a tenth of it to all of it is cut into 2^i equal parts (2^(i+1) if unsigned) whose midpoints are
// values, with both signs if signed; 0 and 1 are values too. A code is a value's place in ascending order.

#include <array>
#include <cstdint>

namespace strata::device::cpu {

/// The values, and what finds the one nearest to a number.
///
/// Numbered by size from `first_rank` on, magnitudes have a closed form: with p the power of two at or below 2 n + 1, the
/// n-th is (18 n + 9 - 8 p) unit, `unit` depending on p alone and the bracket being exact. Magnitudes of one p are a group.
struct DynamicCodebook {
  int32_t first_rank = 0;           ///< of 0. A code is rank - 1 if unsigned, 127 +- rank if signed
  std::array<float, 256> values{};  ///< by code
  /// Midpoints of neighbouring magnitudes, from 0 up, rounded down; infinity past the last. What is above the k-th is
  /// nearer to its right neighbour; one in the middle goes to the left.
  std::array<float, 256> midpoints{};

  /// By the lower 4 bits of p's exponent as a float has it.
  using Groups = std::array<float, 16>;
  alignas(64) Groups unit{};
  alignas(64) Groups constant{};  ///< 9 - 8 p
  alignas(64) Groups slope{};     ///< the rank of x is about slope x + offset
  alignas(64) Groups offset{};
  alignas(64) Groups last{};  ///< largest rank
  /// By bits 1 to 4 of a magnitude's exponent, from 2^-23 on: the group (as above) at the lower end of those two octaves,
  /// and the one midpoint in them above which the next group begins.
  alignas(64) std::array<int32_t, 16> group{};
  alignas(64) std::array<float, 16> threshold{};
};

const DynamicCodebook& dynamic_codebook(bool is_signed);

}  // namespace strata::device::cpu
