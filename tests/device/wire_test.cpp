#include "device/wire.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "device/trial.h"
#include "files/number_formats.h"

namespace strata::device {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
constexpr float least_normal = std::numeric_limits<float>::min(), largest = std::numeric_limits<float>::max();
constexpr DType float_types[] = {DType::f32, DType::bf16, DType::f16};

constexpr Wire raw(DType dtype, bool stochastic = false) {
  return {.kind = WireKind::raw, .dtype = dtype, .stochastic = stochastic};
}
constexpr Wire int8(int32_t block, bool stochastic = false) {
  return {.kind = WireKind::int8, .block = block, .stochastic = stochastic};
}
constexpr Wire int4(int32_t block, bool stochastic = false) {
  return {.kind = WireKind::int4, .block = block, .stochastic = stochastic};
}

std::string text(const Wire& wire, DType from, int64_t n) {
  return std::string(name_of(wire)) + " of " + std::string(name_of(from)) + ", block " + std::to_string(wire.block) +
         (wire.stochastic ? ", stochastic, " : ", ") + std::to_string(n) + " values";
}

Bytes bytes_of(const Floats& values, DType dtype) {
  Bytes bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  files::narrow(values, dtype, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

Floats floats_of(const Bytes& bytes, DType dtype) {
  Floats values(bytes.size() / static_cast<size_t>(size_of(dtype)));
  files::widen(std::as_bytes(std::span(bytes)), dtype, values);
  return values;
}

/// Values as `dtype` holds them.
Floats rounded(const Floats& values, DType dtype) { return floats_of(bytes_of(values, dtype), dtype); }

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// Equal to the bit, but for what kind of NaN.
void expect_same(const Floats& actual, const Floats& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_TRUE(same(actual[i], expected[i]))
        << what << ": element " << i << " is " << actual[i] << ", expected " << expected[i];
}

// ---- What wire.h says, one value at a time --------------------------------------------------------------------------

uint16_t number(const Noise& noise, size_t i) {
  const auto j = static_cast<uint64_t>(noise.first) + i;
  return static_cast<uint16_t>(philox(noise.key, j / 8)[j % 8 / 2] >> (j % 2 * 16));
}

float scale_of(float most, float top) {
  if (!std::isfinite(most)) return nan;
  float scale = most / top;
  if (std::isinf(scale * top)) scale = std::nextafter(scale, 0.0f);
  // Below the least normal number a scale has few bits and would cut off the largest value.
  if (scale < least_normal && scale * top < most) scale = std::nextafter(scale, 1.0f);
  return scale;
}

int code_of(float x, float scale, float top, const Noise* noise, size_t i) {
  if (!(scale > 0)) return 0;
  const float up = scale < least_normal ? 0x1p64f : 1;
  const float v = x * up, inverse = 1 / (scale * up);
  const double whole = noise == nullptr
                           ? std::nearbyint(static_cast<double>(v) * static_cast<double>(inverse))
                           : std::floor(v * inverse + (static_cast<float>(number(*noise, i)) + 0.5f) * 0x1p-16f);
  return std::clamp(static_cast<int>(whole), -static_cast<int>(top), static_cast<int>(top));
}

float stochastic_bf16(float x, uint16_t random) {
  if (!std::isfinite(x)) return x;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + random) & 0xffff0000u);
}

float stochastic_f16(float x, uint16_t random) {
  if (!std::isfinite(x)) return x;
  const float magnitude = std::abs(x);
  float result = 0;
  if (magnitude < 0x1p-14f)
    result = std::floor(magnitude * 0x1p24f + (static_cast<float>(random) + 0.5f) * 0x1p-16f) * 0x1p-24f;
  else
    result = std::bit_cast<float>((std::bit_cast<uint32_t>(magnitude) + random / 8u) & 0xffffe000u);
  return std::copysign(result >= 65536 ? infinity : result, x);
}

struct Encoded {
  Bytes codes;  ///< all but the scales
  Floats scales;
  Floats decoded;  ///< before any rounding to a narrower type
};

Encoded reference(const Wire& wire, const Floats& x, const Noise& noise) {
  Encoded e;
  e.codes.resize(static_cast<size_t>(wire.code_bytes(static_cast<int64_t>(x.size()))));
  e.decoded.resize(x.size());
  if (wire.kind == WireKind::raw) {
    Floats values = x;
    for (size_t i = 0; wire.stochastic && i < x.size(); ++i) {
      if (wire.dtype == DType::bf16) values[i] = stochastic_bf16(x[i], number(noise, i));
      if (wire.dtype == DType::f16) values[i] = stochastic_f16(x[i], number(noise, i));
    }
    e.codes = bytes_of(values, wire.dtype);
    e.decoded = floats_of(e.codes, wire.dtype);
    return e;
  }
  const auto block = static_cast<size_t>(wire.block);
  const float top = wire.kind == WireKind::int8 ? 127 : 7;
  for (size_t begin = 0; begin < x.size(); begin += block) {
    const size_t end = std::min(begin + block, x.size());
    float most = 0;
    for (size_t i = begin; i < end; ++i) most = std::isfinite(x[i]) ? std::max(most, std::abs(x[i])) : infinity;
    for (size_t i = begin; i < end; ++i)
      if (!std::isfinite(x[i])) most = infinity;
    const float scale = scale_of(most, top);
    e.scales.push_back(scale);
    for (size_t i = begin; i < end; ++i) {
      const int code = code_of(x[i], scale, top, wire.stochastic ? &noise : nullptr, i);
      if (wire.kind == WireKind::int8)
        e.codes[i] = static_cast<uint8_t>(code);
      else
        e.codes[i / 2] = static_cast<uint8_t>(e.codes[i / 2] | (code & 15) << (i % 2 * 4));
      e.decoded[i] = static_cast<float>(code) * scale;
    }
  }
  return e;
}

// ---- The device's side ----------------------------------------------------------------------------------------------

class WireTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) device_ = make(1);
  }

  Memory put(const Bytes& bytes) {
    Memory memory = device_->allocate(static_cast<int64_t>(bytes.size()));
    device_->upload(memory.address(), bytes.data(), memory.bytes());
    return memory;
  }
  Memory put(const Floats& values, DType dtype) { return put(bytes_of(values, dtype)); }
  Bytes get(const Memory& memory) {
    Bytes bytes(static_cast<size_t>(memory.bytes()));
    device_->download(bytes.data(), memory.address(), memory.bytes());
    return bytes;
  }
  Floats get(const Memory& memory, DType dtype) { return floats_of(get(memory), dtype); }

  Memory encode(const Wire& wire, const Floats& x, DType dtype, const Noise& noise = {}) {
    const auto n = static_cast<int64_t>(x.size());
    const Memory from = put(x, dtype);
    Memory out = device_->allocate(wire.bytes(n));
    device_->encode(wire, dtype, from.address(), n, out.address(), noise);
    return out;
  }
  Floats decode(const Wire& wire, const Memory& in, int64_t n, DType dtype = DType::f32) {
    const Memory y = device_->allocate(n * size_of(dtype));
    device_->decode(wire, in.address(), n, dtype, y.address());
    return get(y, dtype);
  }

  void expect_encoded(const Memory& memory, const Wire& wire, const Encoded& expected, const std::string& what) {
    const Bytes all = get(memory);
    const size_t codes = expected.codes.size();
    ASSERT_EQ(all.size(), codes + expected.scales.size() * sizeof(float)) << what;
    if (wire.kind == WireKind::raw)
      return expect_same(floats_of(all, wire.dtype), floats_of(expected.codes, wire.dtype), what);
    for (size_t i = 0; i < codes; ++i)
      ASSERT_EQ(int{all[i]}, int{expected.codes[i]}) << what << ": byte " << i << " of the codes";
    expect_same(floats_of(Bytes(all.begin() + static_cast<std::ptrdiff_t>(codes), all.end()), DType::f32),
                expected.scales, what + ", scales");
  }

  void check(const Wire& wire, const Floats& values, DType from, const Noise& noise) {
    const Floats x = rounded(values, from);
    const auto n = static_cast<int64_t>(x.size());
    const std::string what = text(wire, from, n);
    const Encoded expected = reference(wire, x, noise);
    const Memory sent = encode(wire, x, from, noise);
    ASSERT_NO_FATAL_FAILURE(expect_encoded(sent, wire, expected, what));
    for (const DType to : float_types)
      ASSERT_NO_FATAL_FAILURE(expect_same(decode(wire, sent, n, to), rounded(expected.decoded, to),
                                          what + ", decoded to " + std::string(name_of(to))));
  }

  std::unique_ptr<Device> device_;
};
STRATA_ON_EVERY_TARGET(WireTest);

/// Normal values, then stretches of all that is rare.
Floats mixture(int64_t n, unsigned seed) {
  Floats x = random_floats(n, seed, 0.02f);
  std::mt19937 generator(seed);
  for (size_t begin = 0; begin < x.size(); begin += 37) {
    const size_t end = std::min(begin + 37, x.size());
    const uint32_t kind = generator() % 16;
    for (size_t i = begin; i < end; ++i) {
      if (kind == 0) x[i] = 0;
      if (kind == 1) x[i] = -0.0f;
      if (kind == 2) x[i] *= 1e5f;
      if (kind == 3) x[i] *= 1e-5f;
      if (kind == 4) x[i] = static_cast<float>(static_cast<int>(generator() % 255) - 127) / 2;  // many ties
    }
  }
  // In long vectors, whole blocks of what is rare.
  for (size_t i = 2100; n > 6000 && i < 2400; ++i) x[i] = 0;
  for (size_t i = 2500; n > 6000 && i < 2700; ++i) x[i] *= 1e-38f;
  if (n > 6000) {
    x[4500] = nan;
    x[4700] = -infinity;
    x[8191] = largest;
  }
  return x;
}

constexpr int32_t blocks[] = {64, 128, 256, 512, 1024, 2048};

std::vector<Wire> all_wires() {
  std::vector<Wire> wires;
  for (const bool stochastic : {false, true}) {
    for (const DType type : float_types) wires.push_back(raw(type, stochastic));
    for (const int32_t block : {2, 16, 32}) {
      wires.push_back(int8(block, stochastic));
      wires.push_back(int4(block, stochastic));
    }
    for (const int32_t block : blocks) {
      wires.push_back(int8(block, stochastic));
      wires.push_back(int4(block, stochastic));
    }
  }
  return wires;
}

TEST(Wire, CountsBytes) {
  EXPECT_EQ(raw(DType::f32).bytes(5), 20);
  EXPECT_EQ(raw(DType::bf16).bytes(5), 10);
  EXPECT_EQ(raw(DType::i64).bytes(5), 40);
  EXPECT_EQ(int8(64).bytes(0), 0);
  EXPECT_EQ(int8(64).bytes(1), 4 + 4);
  EXPECT_EQ(int8(64).bytes(64), 64 + 4);
  EXPECT_EQ(int8(64).bytes(65), 68 + 8);
  EXPECT_EQ(int4(64).bytes(0), 0);
  EXPECT_EQ(int4(64).bytes(1), 4 + 4);
  EXPECT_EQ(int4(64).bytes(9), 8 + 4);
  EXPECT_EQ(int4(64).bytes(129), 68 + 12);
  EXPECT_EQ(int4(128).bytes(2048), 1024 + 64);
}

TEST(Wire, KnowsWhatIsLossless) {
  EXPECT_TRUE(raw(DType::f32).lossless(DType::f32));
  EXPECT_TRUE(raw(DType::f32).lossless(DType::bf16));
  EXPECT_TRUE(raw(DType::f32).lossless(DType::f16));
  EXPECT_TRUE(raw(DType::bf16).lossless(DType::bf16));
  EXPECT_TRUE(raw(DType::i64).lossless(DType::i64));
  EXPECT_FALSE(raw(DType::bf16).lossless(DType::f32));
  EXPECT_FALSE(raw(DType::bf16).lossless(DType::f16));
  EXPECT_FALSE(raw(DType::f16).lossless(DType::bf16));
  EXPECT_FALSE(raw(DType::f32).lossless(DType::f64));
  EXPECT_FALSE(int8(64).lossless(DType::f32));
}

TEST_P(WireTest, EncodesAndDecodesAsWritten) {
  unsigned seed = 0;
  for (const Wire& wire : all_wires()) {
    const int64_t block = std::max(wire.block, 1);
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, block - 1, block, block + 1, int64_t{2048},
                            int64_t{5000}, int64_t{9001}})
      for (const DType from : float_types)
        ASSERT_NO_FATAL_FAILURE(check(wire, mixture(n, ++seed), from, {.key = 7, .first = int64_t{seed} * 13}));
  }
}

/// Within half a step of nearest rounding, a whole one of stochastic, of whatever size values are.
TEST_P(WireTest, LosesLittleOfAnyMagnitude) {
  for (const Wire& wire : {int8(64), int4(64), int8(64, true), int4(64, true)}) {
    const double top = wire.kind == WireKind::int8 ? 127 : 7;
    for (const float magnitude : {1e-45f, 3e-45f, 1e-44f, 2e-43f, 1e-41f, 1e-39f, 1e-38f, 1.2e-38f, 8e-38f, 1.4e-36f,
                                  1.5e-36f, 1e-35f, 1e-20f, 1.0f, 1e20f, 1e38f, 1.7e38f, 3e38f, largest}) {
      Floats x = random_floats(200, 3);
      for (float& v : x) v = std::clamp(v, -1.0f, 1.0f) * magnitude;
      x[70] = magnitude;
      x[140] = -magnitude;
      ASSERT_NO_FATAL_FAILURE(check(wire, x, DType::f32, {.key = 5}));
      const Floats y = decode(wire, encode(wire, x, DType::f32, {.key = 5}), 200);
      for (size_t i = 0; i < x.size(); ++i) {
        double most = 0;
        for (size_t j = i / 64 * 64; j < std::min(i / 64 * 64 + 64, x.size()); ++j)
          most = std::max(most, std::abs(static_cast<double>(x[j])));
        const double step = std::max(std::ceil(most / top * 0x1p149) * 0x1p-149, most / top);
        ASSERT_LE(std::abs(static_cast<double>(y[i]) - static_cast<double>(x[i])),
                  (wire.stochastic ? 1.0001 : 0.5001) * step)
            << text(wire, DType::f32, 200) << " up to " << magnitude << ", element " << i;
      }
    }
  }
}

TEST_P(WireTest, MarksBlocksThatAreNotFinite) {
  constexpr int64_t n = 131;
  for (const DType from : float_types)
    for (const Wire& wire : {int8(64), int4(64, true), int8(32), raw(DType::bf16)}) {
      const Floats base = rounded(random_floats(n, 9), from);
      const Memory x = put(base, from), out = device_->allocate(wire.bytes(n)), y = device_->allocate(n * 4);
      for (size_t at = 0; at < n; ++at) {
        Floats values = base;
        values[at] = at % 3 == 0 ? infinity : at % 3 == 1 ? -infinity : nan;
        const Bytes bytes = bytes_of(values, from);
        device_->upload(x.address(), bytes.data(), x.bytes());
        device_->encode(wire, from, x.address(), n, out.address(), {.key = 1});
        device_->decode(wire, out.address(), n, DType::f32, y.address());
        const std::string what = text(wire, from, n) + " with one not finite at " + std::to_string(at);
        const Encoded expected = reference(wire, values, {.key = 1});
        ASSERT_NO_FATAL_FAILURE(expect_encoded(out, wire, expected, what));
        const Floats decoded = get(y, DType::f32);
        ASSERT_NO_FATAL_FAILURE(expect_same(decoded, expected.decoded, what));
        if (wire.kind == WireKind::raw) {
          ASSERT_TRUE(same(decoded[at], values[at])) << what;
        } else {
          const size_t block = static_cast<size_t>(wire.block);
          for (size_t i = 0; i < n; ++i) ASSERT_EQ(std::isnan(decoded[i]), i / block == at / block) << what;
        }
      }
    }
}

TEST_P(WireTest, RoundsToNarrowFloats) {
  const Floats x = {0.0f,         -0.0f,         1.0f,     1.00390625f, 1.01171875f, 65504.0f,     65519.0f,
                    65520.0f,     -65520.f,      1e6f,     0x1p-24f,    0x1p-25f,    0x1.8p-25f,   0x1p-14f,
                    0x1.ffcp-15f, 0x1.ffep-15f,  1e-39f,   -1e-40f,     1.4e-45f,    least_normal, largest,
                    -largest,     3.3961775e38f, infinity, nan,         -infinity,   0x1.fep-126f, 0x1.ff8p-127f};
  for (const DType type : {DType::bf16, DType::f16})
    for (size_t shift = 0; shift < x.size(); ++shift) {  // each at each place of a vector
      Floats values(x.size() * 5);
      for (size_t i = 0; i < values.size(); ++i) values[i] = x[(i + shift) % x.size()];
      for (const bool stochastic : {false, true})
        ASSERT_NO_FATAL_FAILURE(check(raw(type, stochastic), values, DType::f32, {.key = shift}));
    }
}

/// What does not fit has the mean that it should.
TEST_P(WireTest, StochasticRoundingIsUnbiased) {
  constexpr size_t block = 64, copies = 300, n = block * copies;
  Floats pattern = random_floats(block, 4, 0.3f);
  pattern[17] = 1;  // the largest, so that each block has the same scale
  for (const Wire& wire : {int8(block, true), int4(block, true), raw(DType::bf16, true), raw(DType::f16, true)})
    for (const float magnitude : {1.0f, 3e-6f}) {  // the latter among f16's subnormals
      Floats x;
      for (size_t c = 0; c < copies; ++c)
        for (const float v : pattern) x.push_back(std::clamp(v, -1.0f, 1.0f) * magnitude);
      const Floats y = decode(wire, encode(wire, x, DType::f32, {.key = 99}), n);
      double worst = 0, all = 0;
      for (size_t i = 0; i < block; ++i) {
        // Neighbours of x on the wire are at most this far apart.
        const double v = std::abs(static_cast<double>(x[i]));
        const double step = wire.kind == WireKind::int8   ? static_cast<double>(magnitude) / 127
                            : wire.kind == WireKind::int4 ? static_cast<double>(magnitude) / 7
                            : wire.dtype == DType::bf16   ? std::ldexp(1, std::ilogb(v) - 7)
                                                          : std::max(std::ldexp(1, std::ilogb(v) - 10), 0x1p-24);
        double mean = 0;
        for (size_t c = 0; c < copies; ++c) {
          const double lost = static_cast<double>(y[c * block + i]) - static_cast<double>(x[i]);
          ASSERT_LT(std::abs(lost), step * 1.0001);
          mean += lost / step / copies;
        }
        worst = std::max(worst, std::abs(mean));
        all += mean / block;
      }
      // A step's uniform error has a deviation of at most a half; five of the mean's.
      EXPECT_LT(worst, 5 * 0.5 / std::sqrt(copies)) << text(wire, DType::f32, n) << " up to " << magnitude;
      EXPECT_LT(std::abs(all), 5 * 0.5 / std::sqrt(n)) << text(wire, DType::f32, n) << " up to " << magnitude;
    }
}

TEST_P(WireTest, StochasticRoundingKeepsWhatFits) {
  Floats x;
  for (int i = -127; i <= 127; ++i) x.push_back(static_cast<float>(i));
  x.resize(256, 127);
  for (uint64_t key = 0; key < 100; ++key) {
    const Noise noise = {.key = key};
    expect_same(decode(int8(256, true), encode(int8(256, true), x, DType::f32, noise), 256), x, "int8");
    expect_same(decode(raw(DType::bf16, true), encode(raw(DType::bf16, true), x, DType::f32, noise), 256), x, "bf16");
    expect_same(decode(raw(DType::f16, true), encode(raw(DType::f16, true), x, DType::f32, noise), 256), x, "f16");
    if (HasFatalFailure()) break;
  }
}

TEST_P(WireTest, NoiseDoesNotDependOnCuts) {
  constexpr int64_t n = 3000, first = 12345;
  const Floats x = mixture(n, 8);
  for (const DType from : float_types)
    for (const Wire& wire :
         {int8(64, true), int4(64, true), int4(2, true), raw(DType::bf16, true), raw(DType::f16, true)}) {
      const Floats whole = decode(wire, encode(wire, x, from, {.key = 3, .first = first}), n);
      const int64_t unit = wire.kind == WireKind::raw ? 1 : wire.block;
      for (const int64_t piece : {int64_t{5}, int64_t{32}}) {
        Floats joined;
        for (int64_t at = 0; at < n; at += 17 * piece * unit) {
          const int64_t some = std::min(n - at, 17 * piece * unit);
          const Floats part(x.begin() + at, x.begin() + at + some);
          const Floats y = decode(wire, encode(wire, part, from, {.key = 3, .first = first + at}), some);
          joined.insert(joined.end(), y.begin(), y.end());
        }
        ASSERT_NO_FATAL_FAILURE(expect_same(joined, whole, text(wire, from, n)));
      }
    }
}

TEST_P(WireTest, EncodingWhatWasDecodedChangesNothingMuch) {
  const Floats x = mixture(5000, 6);
  for (const DType type : float_types)
    for (const Wire& wire : {int8(64), int8(2048), int4(64), int4(512), raw(DType::bf16), raw(DType::f16)}) {
      const Floats once = decode(wire, encode(wire, rounded(x, type), type), 5000);
      const Floats twice = decode(wire, encode(wire, once, DType::f32), 5000);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_LE(std::abs(twice[i] - once[i]), std::abs(once[i]) * 0x1p-23f) << text(wire, type, 5000) << i;
    }
}

TEST_P(WireTest, WholeNumbersTravelAsTheyAre) {
  const std::vector<int64_t> x = {1, -1, std::numeric_limits<int64_t>::min(), 1234567890123456789};
  Bytes bytes(x.size() * 8);
  std::memcpy(bytes.data(), x.data(), bytes.size());
  const Memory from = put(bytes), sent = device_->allocate(32), y = device_->allocate(32);
  for (const DType type : {DType::i64, DType::f64}) {
    device_->encode(raw(type), type, from.address(), 4, sent.address(), {});
    device_->decode(raw(type), sent.address(), 4, type, y.address());
    EXPECT_EQ(get(y), bytes);
  }
  EXPECT_THROW(device_->encode(raw(DType::f32), DType::i64, from.address(), 4, sent.address(), {}), InternalError);
  EXPECT_THROW(device_->encode(int8(64), DType::f64, from.address(), 4, sent.address(), {}), InternalError);
  EXPECT_THROW(device_->encode(int8(48), DType::f32, from.address(), 4, sent.address(), {}), InternalError);
}

// ---- Feedback -------------------------------------------------------------------------------------------------------

TEST_P(WireTest, FeedbackKeepsWhatIsLost) {
  unsigned seed = 100;
  for (const Wire& wire :
       {raw(DType::f32), raw(DType::bf16), raw(DType::f16), raw(DType::bf16, true), raw(DType::f16, true), int8(64),
        int8(512), int8(32), int4(64), int4(2048), int8(64, true), int4(128, true)})
    for (const DType from : float_types)
      for (const int64_t n : {1, 63, 64, 500, 2048, 5000, 8192, 10304}) {
        const std::string what = text(wire, from, n);
        Floats x = rounded(mixture(n, ++seed), from), error = random_floats(n, ++seed, 0.001f);
        if (n == 500) x[130] = nan;
        if (n == 5000) error[4999] = infinity;
        if (n == 2048) x[3] = 1e-40f;
        const Noise noise = {.key = 1, .first = 77};
        Floats sum = x;
        for (size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + error[i];
        const Encoded expected = reference(wire, sum, noise);
        const Memory in = put(x, from), kept = put(error, DType::f32), out = device_->allocate(wire.bytes(n));
        device_->encode_with_feedback(wire, from, in.address(), n, kept.address(), out.address(), noise);
        ASSERT_NO_FATAL_FAILURE(expect_encoded(out, wire, expected, what));
        Floats lost = sum;
        for (size_t i = 0; i < x.size(); ++i) {
          lost[i] = sum[i] - expected.decoded[i];
          if (!std::isfinite(lost[i])) lost[i] = 0;
        }
        const Floats actual = get(kept, DType::f32);
        for (size_t i = 0; i < lost.size(); ++i) ASSERT_EQ(actual[i], lost[i]) << what << ", error " << i;  // 0 == -0
      }
}

TEST_P(WireTest, FeedbackSendsAllInTheEnd) {
  constexpr int64_t n = 300;
  constexpr int rounds = 60;
  for (const Wire& wire : {int4(64), int8(128), int4(64, true), raw(DType::bf16)}) {
    std::vector<double> given(n), sent(n), plain(n);
    const Memory error = put(Floats(n), DType::f32), in = device_->allocate(n * 4),
                 out = device_->allocate(wire.bytes(n));
    double largest_input = 0;
    for (int round = 0; round < rounds; ++round) {
      Floats x = random_floats(n, static_cast<unsigned>(round), 0.1f);
      for (size_t i = 0; i < n; ++i) x[i] += static_cast<float>(i % 7) * 0.01f;  // a drift below int4's step
      const Noise noise = {.key = 2, .first = round * n};
      for (size_t i = 0; i < n; ++i) largest_input = std::max(largest_input, std::abs(static_cast<double>(x[i])));
      device_->upload(in.address(), x.data(), n * 4);
      device_->encode_with_feedback(wire, DType::f32, in.address(), n, error.address(), out.address(), noise);
      const Floats y = decode(wire, out, n), without = decode(wire, encode(wire, x, DType::f32, noise), n);
      for (size_t i = 0; i < n; ++i) {
        given[i] += static_cast<double>(x[i]);
        sent[i] += static_cast<double>(y[i]);
        plain[i] += static_cast<double>(without[i]);
      }
    }
    const double top = wire.kind == WireKind::int4 ? 7 : wire.kind == WireKind::int8 ? 127 : 256;
    double with_feedback = 0, without_feedback = 0;
    for (size_t i = 0; i < n; ++i) {
      // One round's error is left, not a sum of sixty.
      ASSERT_LE(std::abs(sent[i] - given[i]), 1.5 * largest_input / top) << text(wire, DType::f32, n);
      with_feedback += std::abs(sent[i] - given[i]);
      without_feedback += std::abs(plain[i] - given[i]);
    }
    EXPECT_LT(2 * with_feedback, without_feedback) << text(wire, DType::f32, n);
  }
}

// ---- Sums -----------------------------------------------------------------------------------------------------------

/// The sum over the outermost of `widths` of the sums below it.
template <class T>
T bracketed(const std::vector<std::vector<T>>& values, const std::vector<int64_t>& widths, size_t levels, size_t from,
            size_t i) {
  if (levels == 0) return values[from][i];
  size_t below = 1;
  for (size_t l = 0; l + 1 < levels; ++l) below *= static_cast<size_t>(widths[l]);
  T total = bracketed(values, widths, levels - 1, from, i);
  for (size_t c = 1; c < static_cast<size_t>(widths[levels - 1]); ++c)
    total = total + bracketed(values, widths, levels - 1, from + c * below, i);
  return total;
}

TEST_P(WireTest, ReducesInBrackets) {
  const std::vector<std::vector<int64_t>> trees = {
      {1}, {2}, {8}, {3, 2}, {1, 4}, {2, 2, 2}, {4, 1, 2}, {2, 3, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 1, 2, 1}, {1, 1}};
  unsigned seed = 0;
  for (const Wire& wire : {raw(DType::f32), raw(DType::bf16), raw(DType::f16), int8(64), int4(128), int8(32)})
    for (const std::vector<int64_t>& widths : trees) {
      int64_t count = 1;
      for (const int64_t width : widths) count *= width;
      for (const int64_t n : {65, 2500}) {
        if (n == 2500 && count > 4) continue;
        for (int own = -1; own < count; ++own)
          for (const DType own_dtype : {DType::f32, DType::bf16}) {
            if (own_dtype == DType::bf16 && (own < 0 || wire.block == 0)) continue;
            const std::string what = text(wire, own_dtype, n) + ", source " + std::to_string(own) + " of " +
                                     std::to_string(count) + " in " + std::to_string(widths.size());
            std::vector<Floats> values;
            std::vector<Memory> memories;
            std::vector<Address> sources;
            for (int s = 0; s < count; ++s) {
              const Floats x = random_floats(n, ++seed);
              values.push_back(s == own ? rounded(x, own_dtype) : reference(wire, x, {}).decoded);
              memories.push_back(s == own ? put(x, own_dtype) : encode(wire, x, DType::f32));
              sources.push_back(memories.back().address());
            }
            const Floats before = random_floats(n, ++seed);
            Floats total(before.size()), added(before.size());
            for (size_t i = 0; i < before.size(); ++i) {
              total[i] = bracketed(values, widths, widths.size(), 0, i);
              added[i] = before[i] + total[i];
            }
            const Memory y = device_->allocate(n * 4), sum = put(before, DType::f32);
            device_->reduce(wire, sources, widths, own, own_dtype, n, DType::f32, y.address(), false);
            ASSERT_NO_FATAL_FAILURE(expect_same(get(y, DType::f32), total, what));
            device_->reduce(wire, sources, widths, own, own_dtype, n, DType::f32, sum.address(), true);
            ASSERT_NO_FATAL_FAILURE(expect_same(get(sum, DType::f32), added, what + ", accumulated"));
            if (own_dtype == DType::f32 && own >= 0) {
              const size_t mine = static_cast<size_t>(own);
              device_->reduce(wire, sources, widths, own, own_dtype, n, DType::f32, sources[mine], false);
              ASSERT_NO_FATAL_FAILURE(expect_same(get(memories[mine], DType::f32), total, what + ", in place"));
            }
            if (own_dtype == DType::bf16) {
              const size_t mine = static_cast<size_t>(own);
              device_->reduce(wire, sources, widths, own, own_dtype, n, DType::bf16, sources[mine], false);
              ASSERT_NO_FATAL_FAILURE(
                  expect_same(get(memories[mine], DType::bf16), rounded(total, DType::bf16), what + ", bf16 in place"));
            }
          }
      }
    }
}

TEST_P(WireTest, ReducesMany) {
  constexpr int64_t n = 65;
  const std::vector<int64_t> widths = {3, 1, 5, 2, 1, 2, 3, 2};
  std::vector<Floats> values;
  std::vector<Memory> memories;
  std::vector<Address> sources;
  for (unsigned s = 0; s < 360; ++s) {
    values.push_back(random_floats(n, s));
    memories.push_back(put(values.back(), DType::f32));
    sources.push_back(memories.back().address());
  }
  Floats total(n);
  for (size_t i = 0; i < n; ++i) total[i] = bracketed(values, widths, widths.size(), 0, i);
  const Memory y = device_->allocate(n * 4);
  device_->reduce(raw(DType::f32), sources, widths, 100, DType::f32, n, DType::f32, y.address(), false);
  expect_same(get(y, DType::f32), total, "360 sources");
  const std::vector<int64_t> wrong = {3, 5}, none = {0, 360};
  const auto reduce = [&](const std::vector<int64_t>& w, int own) {
    device_->reduce(raw(DType::f32), sources, w, own, DType::f32, n, DType::f32, y.address(), false);
  };
  EXPECT_THROW(reduce(wrong, 0), InternalError);
  EXPECT_THROW(reduce(none, 0), InternalError);
  EXPECT_THROW(reduce(widths, 360), InternalError);
}

template <class T>
std::vector<std::vector<T>> numbers_of(size_t count, size_t n) {
  std::vector<std::vector<T>> values(count, std::vector<T>(n));
  for (size_t s = 0; s < count; ++s)
    for (size_t i = 0; i < n; ++i) {
      const uint64_t bits = uint64_t{philox(s, i)[0]} << 32 | philox(s, i)[1];
      if constexpr (std::is_same_v<T, double>)
        values[s][i] = static_cast<double>(bits) * 0x1p-64 - 0.5;
      else
        values[s][i] = static_cast<T>(bits);
    }
  return values;
}

TEST_P(WireTest, ReducesDoublesAndWholeNumbers) {
  const std::vector<int64_t> widths = {3, 2, 2};
  const auto check = [&](auto zero, DType dtype) {
    using T = decltype(zero);
    const auto values = numbers_of<T>(12, 17);
    std::vector<Memory> memories;
    std::vector<Address> sources;
    const auto put_all = [&](const std::vector<T>& v) {
      Bytes bytes(v.size() * sizeof(T));
      std::memcpy(bytes.data(), v.data(), bytes.size());
      return put(bytes);
    };
    for (const auto& v : values) {
      memories.push_back(put_all(v));
      sources.push_back(memories.back().address());
    }
    const Memory y = put_all(values[0]);
    for (const bool accumulate : {false, true}) {
      std::vector<T> expected(17), actual(17);
      for (size_t i = 0; i < 17; ++i) {
        const T total = bracketed(values, widths, 3, 0, i);
        expected[i] = accumulate ? expected[i] + total : total;
      }
      if (accumulate)
        for (size_t i = 0; i < 17; ++i) expected[i] = expected[i] + bracketed(values, widths, 3, 0, i);
      device_->reduce(raw(dtype), sources, widths, 5, dtype, 17, dtype, y.address(), accumulate);
      device_->download(actual.data(), y.address(), y.bytes());
      EXPECT_EQ(actual, expected);
    }
    // In place.
    std::vector<T> expected(17), actual(17);
    for (size_t i = 0; i < 17; ++i) expected[i] = bracketed(values, widths, 3, 0, i);
    device_->reduce(raw(dtype), sources, widths, 5, dtype, 17, dtype, sources[5], false);
    device_->download(actual.data(), sources[5], 17 * 8);
    EXPECT_EQ(actual, expected);
  };
  check(0.0, DType::f64);
  check(uint64_t{0}, DType::i64);
}

// ---- Threads --------------------------------------------------------------------------------------------------------

/// One thread encodes and sums while another runs kernels on the same allocations.
TEST_P(WireTest, WorksWhileKernelsRun) {
  constexpr int64_t n = 4096;
  const Floats x = random_floats(n, 1);
  const Wire wire = int8(128);
  const Floats expected = reference(wire, x, {}).decoded;
  std::vector<ops::Tensor> tensors(3);
  for (ops::Tensor& tensor : tensors) tensor.shape = {n};
  ops::Op add{.kind = ops::Kind::add};
  add.in = {0, 1};
  add.out = {2};
  const auto kernel = device_->prepare(add, tensors);
  const Memory a = put(x, DType::f32), y = device_->allocate(n * 4);
  std::atomic<bool> done = false;
  constexpr size_t threads = 2;
  std::vector<Memory> sent, back;
  for (size_t t = 0; t < threads; ++t) {
    sent.push_back(device_->allocate(wire.bytes(n)));
    back.push_back(device_->allocate(n * 4));
  }
  std::vector<int> right(threads);
  std::vector<std::thread> others;
  for (size_t t = 0; t < threads; ++t)
    others.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        device_->encode(wire, DType::f32, a.address(), n, sent[t].address(), {});
        device_->reduce(wire, std::vector<Address>{sent[t].address()}, std::vector<int64_t>{1}, -1, DType::f32, n,
                        DType::f32, back[t].address(), false);
        right[t] += get(back[t], DType::f32) == expected;
      }
    });
  std::thread waiter([&] {
    for (std::thread& other : others) other.join();
    done = true;
  });
  while (!done) device_->launch(*kernel, std::vector<Address>{a.address(), a.address(), y.address()}, {});
  waiter.join();
  for (const int count : right) EXPECT_EQ(count, 50);
  Floats twice = x;
  for (float& v : twice) v += v;
  device_->launch(*kernel, std::vector<Address>{a.address(), a.address(), y.address()}, {});
  expect_same(get(y, DType::f32), twice, "the kernel's sum");
}

TEST(PoisonDeathTest, MemoryIsClosedAfterEncoding) {
  const auto device = make_poison(1);
  const Memory x = device->allocate(256), out = device->allocate(int8(64).bytes(64));
  device->fill_zero(x.address(), 256);
  device->encode(int8(64), DType::f32, x.address(), 64, out.address(), {});
  for (const Address address : {x.address(), out.address()})
    EXPECT_DEATH(*reinterpret_cast<volatile char*>(address.value()) = 0, "");
}

}  // namespace
}  // namespace strata::device
