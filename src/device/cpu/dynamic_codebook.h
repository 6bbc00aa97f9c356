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

  /// The values' bytes, least significant first: byte b of code c's is bytes[b][c].
  alignas(64) std::array<std::array<uint8_t, 256>, 4> bytes{};

  /// By bits 1 to 4 of a magnitude's exponent, from 2^-23 on: the one midpoint in those two octaves above which another
  /// group begins.
  alignas(64) std::array<float, 16> threshold{};
  /// The code of x (127 less, if signed) is the integer nearest to slope x + offset, but at most `last`. By the same bits,
  /// and 16 more where x is at most the threshold.
  using Lines = std::array<float, 32>;
  alignas(64) Lines slope{};
  alignas(64) Lines offset{};
  alignas(64) Lines last{};
};

const DynamicCodebook& dynamic_codebook(bool is_signed);

}  // namespace strata::device::cpu
