#include "device/cpu/dynamic_codebook.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace strata::device::cpu {
namespace {

constexpr int decades = 7;
constexpr float infinity = std::numeric_limits<float>::infinity();

int group_of(int rank) { return std::bit_width(static_cast<unsigned>(2 * rank + 1)) - 1; }

/// The largest float at most (a + b) / 2.
float middle(float a, float b) {
  const double exact = (static_cast<double>(a) + static_cast<double>(b)) / 2;
  const auto rounded = static_cast<float>(exact);
  return static_cast<double>(rounded) > exact ? std::nextafter(rounded, 0.0f) : rounded;
}

DynamicCodebook make(bool is_signed) {
  DynamicCodebook book;
  book.first_rank = is_signed ? 0 : 1;
  const int first_group = group_of(book.first_rank), last_group = first_group + decades + 1;
  const int last_rank = 1 << (last_group - 1);  // of 1, alone in its group as 0 is
  // A decade of 10^(i-6) in p / 2 parts: its midpoints are (0.1 + 0.9 (n - p/2 + 1/2) / (p/2)) 10^(i-6).
  const auto constant = [](int group) { return static_cast<float>(9 - 8 * std::ldexp(1.0, group)); };
  const auto unit = [&](int group) {
    if (group == first_group) return 0.0f;
    if (group == last_group) return 1 / (18 * static_cast<float>(last_rank) + constant(group));
    return static_cast<float>(std::pow(10.0, group - first_group - decades) / (10 * std::ldexp(1.0, group)));
  };
  const auto magnitude = [&](int rank) {
    const int group = group_of(rank);
    return (18 * static_cast<float>(rank) + constant(group)) * unit(group);
  };
  STRATA_CHECK(magnitude(last_rank) == 1.0f);
  for (int rank = book.first_rank; rank <= last_rank; ++rank) {
    if (!is_signed) {
      book.values[static_cast<size_t>(rank - 1)] = magnitude(rank);
      continue;
    }
    book.values[static_cast<size_t>(127 + rank)] = magnitude(rank);
    if (rank < last_rank) book.values[static_cast<size_t>(127 - rank)] = -magnitude(rank);
  }
  book.values[is_signed ? 127 : 0] = 0;
  for (size_t code = 0; code < 256; ++code) {
    const auto bits = std::bit_cast<uint32_t>(book.values[code]);
    for (size_t b = 0; b < 4; ++b) book.bytes[b][code] = static_cast<uint8_t>(bits >> 8 * b);
  }

  book.midpoints.fill(infinity);
  book.threshold.fill(infinity);
  for (int rank = book.first_rank; rank < last_rank; ++rank)
    book.midpoints[static_cast<size_t>(rank - book.first_rank)] = middle(magnitude(rank), magnitude(rank + 1));
  for (int exponent = -23; exponent <= 0; exponent += 2) {
    const auto slot = static_cast<size_t>((exponent + 127) / 2) % 16;
    int group = first_group;
    for (int rank = book.first_rank; rank < last_rank; ++rank) {
      if (group_of(rank) == group_of(rank + 1)) continue;
      const float edge = book.midpoints[static_cast<size_t>(rank - book.first_rank)];
      if (edge < std::ldexp(1.0f, exponent)) {
        ++group;
      } else if (edge < std::ldexp(1.0f, exponent + 2)) {
        STRATA_CHECK(book.threshold[slot] == infinity);
        book.threshold[slot] = edge;
      }
    }
    for (const int above : {1, 0}) {
      const int g = std::min(group + above, last_group);
      const size_t line = slot + (above != 0 ? 0 : 16);
      const double power = std::ldexp(1.0, g);
      const bool zero = g == first_group, one = g == last_group;
      const int last = zero ? book.first_rank : one ? last_rank : static_cast<int>(power) - 1;
      book.slope[line] = zero || one ? 0.0f : 1 / (18 * unit(g));
      book.offset[line] = static_cast<float>((zero || one ? last : (8 * power - 9) / 18) - book.first_rank);
      book.last[line] = static_cast<float>(last - book.first_rank);
    }
  }
  return book;
}

}  // namespace

const DynamicCodebook& dynamic_codebook(bool is_signed) {
  static const DynamicCodebook with_sign = make(true), without = make(false);
  return is_signed ? with_sign : without;
}

}  // namespace strata::device::cpu
