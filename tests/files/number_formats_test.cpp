#include "files/number_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace strata::files {
namespace {

/// The value of a 16-bit pattern with `exponent_bits`, from the definition.
double value_of(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits & 0x7FFF) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

struct Format {
  const char* name;
  int exponent_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};
constexpr Format formats[] = {{"bf16", 8, bf16_to_float, float_to_bf16}, {"f16", 5, f16_to_float, float_to_f16}};

TEST(NumberFormats, WidenEveryPatternExactlyAndNarrowItBack) {
  for (const Format& format : formats) {
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const float value = format.widen(bits);
      const double expected = value_of(bits, format.exponent_bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(value)) << format.name << " " << i;
        ASSERT_TRUE(std::isnan(format.widen(format.narrow(value)))) << format.name << " " << i;
      } else {
        ASSERT_EQ(value, expected) << format.name << " " << i;
        ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0);
        ASSERT_EQ(format.narrow(value), bits) << format.name << " " << i;
      }
    }
  }
}

TEST(NumberFormats, RoundToNearestTiesToEven) {
  for (const Format& format : formats) {
    // Between each pair of neighbours: the halfway point and its two float neighbours.
    const int infinity = ((1 << format.exponent_bits) - 1) << (15 - format.exponent_bits);
    for (int i = 0; i + 1 < infinity; ++i) {
      const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
      const double middle = (value_of(low, format.exponent_bits) + value_of(high, format.exponent_bits)) / 2;
      const auto halfway = static_cast<float>(middle);
      ASSERT_EQ(halfway, middle);
      const uint16_t even = (i & 1) == 0 ? low : high;
      ASSERT_EQ(format.narrow(halfway), even) << format.name << " " << i;
      ASSERT_EQ(format.narrow(-halfway), even | 0x8000) << format.name << " " << i;
      ASSERT_EQ(format.narrow(std::nextafter(halfway, 0.0f)), low) << format.name << " " << i;
      ASSERT_EQ(format.narrow(std::nextafter(halfway, std::numeric_limits<float>::infinity())), high) << format.name;
    }
  }
}

TEST(NumberFormats, OverflowToInfinity) {
  EXPECT_EQ(float_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65519.99f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_f16(-1e30f), 0xFC00);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(float_to_bf16(-std::numeric_limits<float>::infinity()), 0xFF80);
}

TEST(NumberFormats, ConvertRanges) {
  const std::vector<float> values = {0, -0.0f, 1, -2.5f, 3e-5f, 1e30f, std::numeric_limits<float>::infinity()};
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto size = static_cast<size_t>(size_of(dtype));
    std::vector<std::byte> bytes(values.size() * size + 1);
    const auto odd = std::span(bytes).subspan(1);  // at no aligned address
    narrow(values, dtype, odd);
    std::vector<float> back(values.size());
    widen(odd, dtype, back);
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = dtype == DType::bf16  ? bf16_to_float(float_to_bf16(values[i]))
                             : dtype == DType::f16 ? f16_to_float(float_to_f16(values[i]))
                                                   : values[i];
      EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(expected)) << name_of(dtype) << " " << i;
    }
  }
}

}  // namespace
}  // namespace strata::files
