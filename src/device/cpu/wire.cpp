// What travels between ranks: values to codes and back, and sums of what has arrived (device/wire.h, Device::encode ...).
// All of it runs on the calling thread alone, holds no state, and gives the same bits on every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/wire.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "core/random.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/philox-inl.h"
#include "device/cpu/wire.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVector = hn::Vec<IntTag>;

/// Four vectors of consecutive elements: what all loops here step by. A block is a whole number of them. Named, as
/// compilers keep arrays of vectors in memory.
template <class V>
struct Four {
  V a, b, c, d;
};
using Quad = Four<FloatVector>;
using IntQuad = Four<IntVector>;
constexpr int64_t lanes = static_cast<int64_t>(HWY_LANES(float));
constexpr int64_t quad_size = 4 * lanes;

/// f(0), f(1), f(2), f(3): the number of a vector within the four.
template <class F>
HWY_INLINE auto four_of(const F& f) -> Four<decltype(f(0))> {
  return {f(0), f(1), f(2), f(3)};
}
template <class F, class... V>
HWY_INLINE auto map(const F& f, const Four<V>&... x) -> Four<decltype(f(x.a...))> {
  return {f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
}

// ---- Noise -------------------------------------------------------------------------------------------------------

/// 16-bit numbers of a stream from `first` on, in memory.
class Numbers {
 public:
  /// `count` at most a grain.
  HWY_INLINE void draw(const Noise& noise, int64_t at, int64_t count) {
    const PhiloxKeys<> keys(noise.key);
    const uint64_t first = static_cast<uint64_t>(noise.first) + static_cast<uint64_t>(at);
    from_ = numbers_ + first % each;
    const int64_t counters = divide_up(static_cast<int64_t>(first % each) + count, each);
#if HWY_TARGET == HWY_SCALAR
    for (int64_t i = 0; i < counters; ++i) {
      const Random4 words = philox(noise.key, first / each + static_cast<uint64_t>(i));
      for (size_t j = 0; j < each; ++j)
        numbers_[i * each + static_cast<int64_t>(j)] = static_cast<uint16_t>(words[j / 2] >> (16 * (j % 2)));
    }
#else
    const CounterTag wide;
    const WordTag d;
    const auto places = interleaved_places();
    const int64_t step = static_cast<int64_t>(hn::Lanes(wide));
    for (int64_t i = 0; i < counters; i += step) {
      const auto counter = hn::Add(places, hn::Set(wide, first / each + static_cast<uint64_t>(i)));
      const PhiloxWords c = philox_of(keys, {counter, hn::ShiftRight<32>(counter), hn::Zero(wide), hn::Zero(wide)});
      const auto w01 = hn::BitCast(wide, join_words(c.c0, c.c1)), w23 = hn::BitCast(wide, join_words(c.c2, c.c3));
      uint32_t* to = reinterpret_cast<uint32_t*>(numbers_ + i * each);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(wide, w01, w23)), d, to);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(wide, w01, w23)), d, to + lanes);
    }
#endif
  }
  HWY_INLINE const uint16_t* from() const { return from_; }

 private:
  static constexpr int64_t each = 8;  ///< numbers a counter gives
  HWY_ALIGN uint16_t numbers_[ops::grain + 2 * HWY_MAX_BYTES];
  const uint16_t* from_ = nullptr;
};

/// A number as u, uniform in (0, 1): the middle of its 2^-16, so that x + u rounds no integer x up, nor ever down.
HWY_INLINE FloatVector uniform_of(IntVector number) {
  const FloatTag d;
  return hn::MulAdd(hn::ConvertTo(d, number), hn::Set(d, 0x1p-16f), hn::Set(d, 0x1p-17f));  // exact
}

HWY_INLINE IntVector load_number(const uint16_t* from) {
  const hn::Rebind<uint16_t, FloatTag> narrow;
  return hn::BitCast(IntTag(), hn::PromoteTo(WordTag(), hn::LoadU(narrow, from)));
}

// ---- Values in ----------------------------------------------------------------------------------------------------

/// Where two vectors of bf16 lie in a quad: even and odd elements apart where that is cheaper, and nothing else has to
/// go with them.
template <class T>
inline constexpr bool splits = HWY_TARGET == HWY_AVX3&& std::is_same_v<T, Bfloat16>;

template <class T>
HWY_INLINE Quad load_quad(const T* from) {
  const FloatTag d;
  return four_of([=](int k) HWY_ATTR { return load(d, from + k * lanes, Whole{}); });
}

/// Values as they are in memory.
template <class T>
struct Plain {
  static constexpr bool split = splits<T>, corrected = false;
  const T* x;

  HWY_INLINE Quad quad(int64_t i) const {
    if constexpr (split) {
      const Pair a = load_pair(x + i, Whole{}), b = load_pair(x + i + 2 * lanes, Whole{});
      return {a.first, a.second, b.first, b.second};
    } else {
      return load_quad(x + i);
    }
  }
  template <class Span>
  HWY_INLINE FloatVector one(int64_t i, Span span) const {
    return load(FloatTag(), x + i, span);
  }
  Plain operator+(int64_t offset) const { return {x + offset}; }
};

/// Values and what earlier encodings lost of them.
template <class T>
struct Corrected {
  static constexpr bool split = false, corrected = true;
  const T* x;
  const float* error;

  HWY_INLINE Quad quad(int64_t i) const {
    return four_of([=, this](int k) HWY_ATTR { return one(i + k * lanes, Whole{}); });
  }
  template <class Span>
  HWY_INLINE FloatVector one(int64_t i, Span span) const {
    const FloatTag d;
    return hn::Add(load(d, x + i, span), load(d, error + i, span));
  }
  Corrected operator+(int64_t offset) const { return {x + offset, error + offset}; }
};

template <class Source>
HWY_INLINE void widen(const Source& source, int64_t count, float* to) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR { store(d, source.one(i, span), to + i, span); });
}

// ---- Values out ---------------------------------------------------------------------------------------------------

template <class T>
HWY_INLINE void store_vectors(const Quad& q, T* to) {
  const FloatTag d;
  store(d, q.a, to, Whole{});
  store(d, q.b, to + lanes, Whole{});
  store(d, q.c, to + 2 * lanes, Whole{});
  store(d, q.d, to + 3 * lanes, Whole{});
}
/// `plain`: none is a NaN or below 2^-126, but for zeros.
template <bool plain = false, class T>
HWY_INLINE void store_quad(const Quad& q, T* to) {
  store_vectors(q, to);
}

#if HWY_TARGET == HWY_AVX3
/// The instruction knows no number below 2^-126 and keeps NaNs' payloads: those go the longer way, as everywhere.
template <bool plain = false>
HWY_INLINE void store_quad(const Quad& q, Bfloat16* to) {
  constexpr int unlike = 0x01 | 0x80 | 0x20;  // quiet and signalling NaN, subnormal
  if (has_native_bfloat16) {
    const auto any = _mm512_fpclass_ps_mask(q.a.raw, unlike) | _mm512_fpclass_ps_mask(q.b.raw, unlike) |
                     _mm512_fpclass_ps_mask(q.c.raw, unlike) | _mm512_fpclass_ps_mask(q.d.raw, unlike);
    if (plain || any == 0) [[likely]] {
      _mm512_storeu_si512(to, native_bfloat16({q.a, q.b}));
      _mm512_storeu_si512(to + 2 * lanes, native_bfloat16({q.c, q.d}));
      return;
    }
  }
  store_vectors(q, to);
}
#endif

// ---- Codes --------------------------------------------------------------------------------------------------------

template <int bits>
inline constexpr int32_t limit = bits == 8 ? 127 : 7;

HWY_INLINE int32_t nearest_product(float x, float inverse) {
  constexpr double whole_numbers = 0x1.8p52;
  return static_cast<int32_t>((double{x} * double{inverse} + whole_numbers) - whole_numbers);
}

/// Added to a number below 2^21, it leaves the nearest integer in the lower half of the sum's bits.
constexpr float shift = 0x1.8p23f;
constexpr int32_t shift_bits = 0x4b400000;

/// x inverse to nearest, the product exact until it is rounded: its lower 16 bits, the upper ones are anything.
HWY_INLINE IntVector nearest(FloatVector x, FloatVector inverse) {
#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR
  return hn::BitCast(IntTag(), hn::MulAdd(x, inverse, hn::Set(FloatTag(), shift)));
#else  // in double, which holds the product
  HWY_ALIGN float values[lanes], factors[lanes];
  HWY_ALIGN int32_t codes[lanes];
  hn::Store(x, FloatTag(), values);
  hn::Store(inverse, FloatTag(), factors);
  for (int64_t i = 0; i < lanes; ++i) codes[i] = nearest_product(values[i], factors[i]) + shift_bits;
  return hn::Load(IntTag(), codes);
#endif
}

/// A code as codes_of leaves it, as a float.
template <bool stochastic>
HWY_INLINE FloatVector float_of(IntVector code) {
  const FloatTag d;
  if constexpr (!stochastic && HWY_TARGET == HWY_AVX3)
    return hn::Sub(hn::BitCast(d, code), hn::Set(d, shift));
  else
    return hn::ConvertTo(d, code);
}

/// The codes of a quad of finite values; with AVX-512 in the lower halves, the upper ones are anything. In stochastic
/// rounding product and sum are not fused, as not every instruction set can.
template <int bits, bool stochastic, bool split>
HWY_INLINE IntQuad codes_of(const Quad& x, FloatVector inverse, const uint16_t* numbers) {
  const IntTag di;
  if constexpr (!stochastic) {
    // Never beyond the limit: |x| inverse is at most it and a few rounding errors.
    return map(
        [=](FloatVector v) HWY_ATTR {
          const auto code = nearest(v, inverse);
          return HWY_TARGET == HWY_AVX3 ? code : hn::Sub(code, hn::Set(di, shift_bits));
        },
        x);
  } else {
    const auto round = [=](FloatVector v, IntVector number) HWY_ATTR {
      const auto low = hn::ConvertTo(di, hn::Floor(hn::Add(hn::Mul(v, inverse), uniform_of(number))));
      return hn::Max(hn::Set(di, -limit<bits>), hn::Min(hn::Set(di, limit<bits>), low));
    };
    if constexpr (split) {
      const auto pairs = [=](int k)
                             HWY_ATTR { return hn::LoadU(di, reinterpret_cast<const int32_t*>(numbers + k * lanes)); };
      const auto even = [=](IntVector both) HWY_ATTR { return hn::And(both, hn::Set(di, 0xffff)); };
      const auto odd = [=](IntVector both)
                           HWY_ATTR { return hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(WordTag(), both))); };
      const auto first = pairs(0), second = pairs(2);
      return map(round, x, IntQuad{even(first), odd(first), even(second), odd(second)});
    } else {
      return map(round, x, four_of([=](int k) HWY_ATTR { return load_number(numbers + k * lanes); }));
    }
  }
}

/// A quad's codes, in order.
template <int bits, bool split>
HWY_INLINE void store_codes(const IntQuad& q, uint8_t* to) {
#if HWY_TARGET == HWY_AVX3
  __m512i bytes;
  if constexpr (split) {
    const auto join = [](IntVector even, IntVector odd) HWY_ATTR {
      return _mm512_mask_blend_epi16(0xaaaaaaaa, even.raw, _mm512_slli_epi32(odd.raw, 16));
    };
    const __m512i mixed = _mm512_packs_epi16(join(q.a, q.b), join(q.c, q.d));
    bytes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), mixed);
  } else {
    const __m512i lower = hn::Load(hn::ScalableTag<uint16_t>(), lower_halves.of).raw;
    const __m512i mixed = _mm512_packs_epi16(_mm512_permutex2var_epi16(q.a.raw, lower, q.b.raw),
                                             _mm512_permutex2var_epi16(q.c.raw, lower, q.d.raw));
    bytes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), mixed);
  }
  if constexpr (bits == 8) {
    _mm512_storeu_si512(to, bytes);
  } else {
    // Of each 16 bits, the lower half of the first byte and the lower half of the second, which moves down.
    const __m512i pairs = _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x0f), bytes, _mm512_srli_epi16(bytes, 4), 0xca);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(pairs));
  }
#else
  const hn::Rebind<int8_t, FloatTag> narrow;
  HWY_ALIGN int8_t bytes[quad_size];
  int8_t* codes = bits == 8 ? reinterpret_cast<int8_t*>(to) : bytes;
  hn::StoreU(hn::DemoteTo(narrow, q.a), narrow, codes);
  hn::StoreU(hn::DemoteTo(narrow, q.b), narrow, codes + lanes);
  hn::StoreU(hn::DemoteTo(narrow, q.c), narrow, codes + 2 * lanes);
  hn::StoreU(hn::DemoteTo(narrow, q.d), narrow, codes + 3 * lanes);
  if constexpr (bits == 4) {
    const hn::ScalableTag<int16_t> pair;
    const hn::Rebind<uint8_t, decltype(pair)> half;
    for (size_t i = 0; i < static_cast<size_t>(quad_size) / 2; i += hn::Lanes(pair)) {
      const auto both = hn::LoadU(pair, reinterpret_cast<const int16_t*>(bytes) + i);
      const auto low = hn::And(both, hn::Set(pair, int16_t{0x0f}));
      const auto high = hn::And(hn::ShiftRight<4>(both), hn::Set(pair, int16_t{0xf0}));
      hn::StoreU(hn::DemoteTo(half, hn::Or(low, high)), half, to + i);
    }
  }
#endif
}

/// The largest |x| of a block, as bit patterns: signs aside, floats are in the order of theirs, and what is not finite
/// comes last. `take` sees quads, `lanes_of` is the largest in each lane.
template <class Source>
class FloatPeak {
 public:
  HWY_INLINE FloatPeak() : most_(four_of([](int) HWY_ATTR { return hn::Zero(IntTag()); })) {}
  HWY_INLINE void take(const Source& source, int64_t i) {
    const IntTag di;
    most_ = map([=](IntVector most, FloatVector v)
                    HWY_ATTR { return hn::Max(most, hn::And(hn::BitCast(di, v), hn::Set(di, 0x7fffffff))); },
                most_, source.quad(i));
  }
  HWY_INLINE IntVector lanes_of() const { return hn::Max(hn::Max(most_.a, most_.b), hn::Max(most_.c, most_.d)); }
  /// Of one lane: as f32.
  HWY_INLINE static uint32_t widened(uint32_t bits) { return bits; }

 private:
  IntQuad most_;
};
template <class Source>
struct PeakOf {
  using Type = FloatPeak<Source>;
};

#if HWY_TARGET != HWY_SCALAR
/// The same of values in 16 bits, as they are in memory.
template <class T>
class HalfPeak {
 public:
  HWY_INLINE HalfPeak() : first_(hn::Zero(Tag())), second_(first_) {}
  HWY_INLINE void take(const Plain<T>& source, int64_t i) {
    const auto* x = reinterpret_cast<const int16_t*>(source.x + i);
    first_ = hn::Max(first_, hn::And(hn::LoadU(Tag(), x), hn::Set(Tag(), int16_t{0x7fff})));
    second_ = hn::Max(second_, hn::And(hn::LoadU(Tag(), x + 2 * lanes), hn::Set(Tag(), int16_t{0x7fff})));
  }
  HWY_INLINE IntVector lanes_of() const {
    const IntTag di;
    const auto both = hn::BitCast(di, hn::Max(first_, second_));
    return hn::Max(hn::And(both, hn::Set(di, 0xffff)), hn::ShiftRight<16>(both));
  }
  HWY_INLINE static uint32_t widened(uint32_t bits) {
    if (std::is_same_v<T, Bfloat16>) return bits << 16;
    if (bits >= 0x7c00) return 0x7f800000;
    if (bits >= 0x0400) return (bits << 13) + (112u << 23);
    const float tiny = static_cast<float>(bits) * 0x1p-24f;
    uint32_t result;
    std::memcpy(&result, &tiny, sizeof(result));
    return result;
  }

 private:
  using Tag = hn::ScalableTag<int16_t>;
  hn::Vec<Tag> first_, second_;
};
template <>
struct PeakOf<Plain<Bfloat16>> {
  using Type = HalfPeak<Bfloat16>;
};
template <>
struct PeakOf<Plain<Float16>> {
  using Type = HalfPeak<Float16>;
};
#endif
template <class Source>
using Peak = typename PeakOf<Source>::Type;

/// Any block, one value at a time: what the loops below leave out, which is where the largest is zero, not finite, or so
/// small or large that a scale or its inverse would not be a normal number or codes would decode to infinity. Stores codes
/// and error; returns the scale.
template <int bits>
HWY_NOINLINE float encode_block(const float* x, int64_t count, uint32_t largest, const uint16_t* numbers,
                                uint8_t* codes, float* error) {
  std::memset(codes, 0, static_cast<size_t>(divide_up(count * bits, 8)));
  float most;
  std::memcpy(&most, &largest, sizeof(most));
  const bool finite = largest < 0x7f800000;
  float scale = finite ? most / static_cast<float>(limit<bits>) : std::numeric_limits<float>::quiet_NaN();
  if (finite && scale * static_cast<float>(limit<bits>) > std::numeric_limits<float>::max())
    scale = std::nextafter(scale, 0.0f);
  else if (scale < std::numeric_limits<float>::min() && scale * static_cast<float>(limit<bits>) < most)
    // A scale of few bits: the one above, or the largest would be cut off.
    scale = std::nextafter(scale, 1.0f);
  if (!finite || scale == 0) {
    if (error != nullptr)
      for (int64_t i = 0; i < count; ++i) error[i] = finite ? x[i] : 0;
    return scale;
  }
  const float up = scale < std::numeric_limits<float>::min() ? 0x1p64f : 1.0f, inverse = 1 / (scale * up);
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i] * up;
    const int32_t rounded =
        numbers == nullptr
            ? nearest_product(v, inverse)
            : static_cast<int32_t>(std::floor(v * inverse + (static_cast<float>(numbers[i]) * 0x1p-16f + 0x1p-17f)));
    const int32_t code = std::clamp(rounded, -limit<bits>, limit<bits>);
    if constexpr (bits == 8)
      codes[i] = static_cast<uint8_t>(code);
    else
      codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | (code & 15) << (i % 2 * 4));
    if (error != nullptr) error[i] = x[i] - static_cast<float>(code) * scale;
  }
  return scale;
}

/// What must be known of a grain's blocks before they are encoded, besides their scales.
struct Blocks {
  static constexpr int64_t most = ops::grain / quad_size;
  HWY_ALIGN int32_t peaks[most * lanes];  ///< a vector for each block
  HWY_ALIGN uint32_t largest[most];       ///< of it, as f32: at least infinity's bits if one is not finite
  HWY_ALIGN float inverse[most + lanes];
};
static_assert(Blocks::most % 4 == 0);

/// From peaks to all else.
template <int bits, class Source>
HWY_INLINE void finish(int64_t count, Blocks& blocks, float* scales) {
  const FloatTag d;
  const IntTag di;
#if HWY_TARGET == HWY_AVX3
  for (int64_t b = 0; b < count; b += 4) {  // four at once: lanes within 128 bits, then those
    const auto peak = [&](int64_t i) HWY_ATTR { return _mm512_load_si512(blocks.peaks + (b + i) * lanes); };
    const auto pairs = [](__m512i x, __m512i y) HWY_ATTR {
      return _mm512_max_epi32(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
    };
    const __m512i ab = pairs(peak(0), peak(1)), cd = pairs(peak(2), peak(3));
    const __m512i all = _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m512i half = _mm512_max_epi32(all, _mm512_shuffle_i64x2(all, all, 0x4e));
    const __m512i most = _mm512_max_epi32(half, _mm512_shuffle_i64x2(half, half, 0xb1));
    _mm_store_si128(reinterpret_cast<__m128i*>(blocks.largest + b), _mm512_castsi512_si128(most));
  }
#else
  for (int64_t b = 0; b < count; ++b)
    blocks.largest[b] = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, hn::Load(di, blocks.peaks + b * lanes))));
#endif
  for (int64_t b = 0; b < count; ++b) blocks.largest[b] = Peak<Source>::widened(blocks.largest[b]);
  each_vector(d, count, [&](int64_t b, auto span) HWY_ATTR {
    const auto largest = hn::BitCast(d, load(WordTag(), blocks.largest + b, span));
    const auto scale = hn::Div(largest, hn::Set(d, float{limit<bits>}));
    store(d, scale, scales + b, span);
    hn::Store(hn::Div(hn::Set(d, 1.0f), scale), d, blocks.inverse + b);
  });
}

template <class Source>
HWY_INLINE void measure_block(const Source& source, int64_t begin, int64_t end, int32_t* peaks) {
  Peak<Source> peak;
  for (int64_t i = begin; i < end; i += quad_size) peak.take(source, i);
  hn::Store(peak.lanes_of(), IntTag(), peaks);
}

/// How many grains ahead blocks are measured. Reading them is bound by the cache that they come from and encoding by
/// arithmetic, so the two go together; and while one grain lies between, no one waits for the divisions.
constexpr int64_t distance = 2;

/// Whole quads, at most a grain. `ahead`: this grain is whole and so is the one `distance` on, whose peaks are measured.
template <int bits, bool stochastic, bool ahead, class Source>
HWY_INLINE void encode_grain(const Source& source, int64_t count, int64_t block, const Blocks& blocks, Blocks& next,
                             const uint16_t* numbers, uint8_t* codes, float* scales, float* error) {
  const FloatTag d;
  constexpr uint32_t least_plain = bits == 8 ? 0x04000000 : 0x02000000;  // 2^-119 > 127 2^-126, 2^-123 > 7 2^-126
  constexpr uint32_t above_plain = 0x7f000000;                           // 2^127
  int64_t b = 0;
  for (int64_t begin = 0; begin < count; begin += block, ++b) {
    const int64_t end = std::min(begin + block, count);
    int32_t* peaks = next.peaks + b * lanes;
    if (blocks.largest[b] - least_plain < above_plain - least_plain) [[likely]] {
      const auto by = hn::Set(d, blocks.inverse[b]), back = hn::Set(d, scales[b]);
      Peak<Source> peak;
      for (int64_t i = begin; i < end; i += quad_size) {
        if constexpr (ahead) peak.take(source, i + distance * ops::grain);
        const Quad x = source.quad(i);
        const IntQuad q = codes_of<bits, stochastic, Source::split>(x, by, stochastic ? numbers + i : nullptr);
        store_codes<bits, Source::split>(q, codes + i * bits / 8);
        if constexpr (Source::corrected)
          store_vectors(map([=](FloatVector v, IntVector code)
                                HWY_ATTR { return hn::Sub(v, hn::Mul(float_of<stochastic>(code), back)); },
                            x, q),
                        error + i);
      }
      if constexpr (ahead) hn::Store(peak.lanes_of(), IntTag(), peaks);
    } else {
      HWY_ALIGN float x[ops::grain];
      widen(source + begin, end - begin, x);
      scales[b] = encode_block<bits>(x, end - begin, blocks.largest[b], stochastic ? numbers + begin : nullptr,
                                     codes + begin * bits / 8, error == nullptr ? nullptr : error + begin);
      if (ahead) measure_block(source, begin + distance * ops::grain, end + distance * ops::grain, peaks);
    }
  }
}

/// Whole quads.
template <int bits, bool stochastic, class Source>
HWY_NOINLINE void encode_quads(Source source, int64_t count, int64_t block, const Noise& noise, int64_t noise_from,
                               uint8_t* codes, float* scales, float* error) {
  Blocks ring[distance + 1];
  std::conditional_t<stochastic, Numbers, char> numbers;
  const int64_t blocks_a_grain = ops::grain / block;
  // The grain `from` elements on.
  const auto measure = [&](int64_t from, int64_t elements, Blocks& blocks) HWY_ATTR {
    int64_t b = 0;
    for (int64_t begin = 0; begin < elements; begin += block)
      measure_block(source, from + begin, from + std::min(begin + block, elements), blocks.peaks + b++ * lanes);
    finish<bits, Source>(b, blocks, scales + from / ops::grain * blocks_a_grain);
  };
  for (int64_t g = 0; g < distance && g * ops::grain < count; ++g)
    measure(g * ops::grain, std::min(ops::grain, count - g * ops::grain), ring[g]);
  int64_t turn = 0;
  for (int64_t left = count; left > 0; left -= ops::grain) {
    Blocks &blocks = ring[turn], &other = ring[(turn + distance) % (distance + 1)];
    turn = (turn + 1) % (distance + 1);
    const int64_t some = std::min(ops::grain, left), beyond = left - distance * ops::grain;
    const uint16_t* from = nullptr;
    if constexpr (stochastic) {
      numbers.draw(noise, noise_from + count - left, some);
      from = numbers.from();
    }
    if (beyond >= ops::grain) {
      encode_grain<bits, stochastic, true>(source, some, block, blocks, other, from, codes, scales, error);
      finish<bits, Source>(blocks_a_grain, other, scales + distance * blocks_a_grain);
    } else {
      encode_grain<bits, stochastic, false>(source, some, block, blocks, other, from, codes, scales, error);
      if (beyond > 0) measure(distance * ops::grain, beyond, other);
    }
    source = source + ops::grain;
    codes += ops::grain * bits / 8;
    scales += blocks_a_grain;
    if (Source::corrected) error += ops::grain;
  }
}

/// Blocks smaller than a quad, one value at a time.
template <int bits>
HWY_NOINLINE void encode_small_blocks(const float* x, int64_t count, int64_t block, const uint16_t* numbers,
                                      uint8_t* codes, float* scales, float* error) {
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t some = std::min(block, count - begin);
    uint32_t largest = 0;
    for (int64_t i = 0; i < some; ++i) {
      uint32_t bits_of_x;
      std::memcpy(&bits_of_x, x + begin + i, sizeof(bits_of_x));
      largest = std::max(largest, bits_of_x & 0x7fffffff);
    }
    scales[begin / block] = encode_block<bits>(x + begin, some, largest, numbers == nullptr ? nullptr : numbers + begin,
                                               codes + begin * bits / 8, error == nullptr ? nullptr : error + begin);
  }
}

/// A grain of small blocks, or the end of a vector, which may be no whole number of quads: through memory that is. `x` has
/// room for a grain.
template <int bits, bool stochastic>
HWY_NOINLINE void encode_rest(float* x, int64_t count, int64_t block, const Noise& noise, int64_t noise_from,
                              uint8_t* codes, float* scales, float* error) {
  if (block < quad_size) {
    Numbers numbers;
    if (stochastic) numbers.draw(noise, noise_from, count);
    return encode_small_blocks<bits>(x, count, block, numbers.from(), codes, scales, error);
  }
  HWY_ALIGN uint8_t padded[ops::grain];
  const int64_t whole_quads = round_up(count, quad_size);
  std::fill(x + count, x + whole_quads, 0.0f);
  if (error == nullptr) {
    encode_quads<bits, stochastic>(Plain<float>{x}, whole_quads, block, noise, noise_from, padded, scales, nullptr);
  } else {
    HWY_ALIGN float none[ops::grain] = {}, lost[ops::grain];
    encode_quads<bits, stochastic>(Corrected<float>{x, none}, whole_quads, block, noise, noise_from, padded, scales,
                                   lost);
    std::memcpy(error, lost, static_cast<size_t>(count) * sizeof(float));
  }
  std::memcpy(codes, padded, static_cast<size_t>(divide_up(count * bits, 8)));
}

template <int bits, bool stochastic, class Source>
HWY_INLINE void encode_codes(const Wire& wire, const Source& source, int64_t count, float* error, uint8_t* out,
                             const Noise& noise) {
  const int64_t block = wire.block, code_bytes = wire.code_bytes(count), used = divide_up(count * bits, 8);
  auto* scales = reinterpret_cast<float*>(out + code_bytes);
  std::memset(out + used, 0, static_cast<size_t>(code_bytes - used));
  // All but an odd end, which begins at a grain.
  const int64_t easy = block < quad_size ? 0 : count % quad_size == 0 ? count : count / ops::grain * ops::grain;
  if (easy > 0) encode_quads<bits, stochastic>(source, easy, block, noise, 0, out, scales, error);
  for (int64_t at = easy; at < count; at += ops::grain) {
    const int64_t some = std::min(ops::grain, count - at);
    HWY_ALIGN float x[ops::grain];
    widen(source + at, some, x);
    encode_rest<bits, stochastic>(x, some, block, noise, at, out + at * bits / 8, scales + at / block,
                                  error == nullptr ? nullptr : error + at);
  }
}

// ---- Floats to narrower floats ------------------------------------------------------------------------------------

template <class Span>
HWY_INLINE void store_stochastic(FloatVector v, IntVector number, Bfloat16* to, Span span) {
  const WordTag d;
  const auto bits = hn::BitCast(d, v), exponent = hn::Set(d, 0x7f800000u);
  const auto special = hn::Eq(hn::And(bits, exponent), exponent);
  const auto moved = hn::IfThenElse(special, bits, hn::Add(bits, hn::BitCast(d, number)));
  const auto kept = hn::BitCast(FloatTag(), hn::And(moved, hn::Set(d, 0xffff0000u)));
  // What is cut off a NaN may be all that makes it one.
  store(FloatTag(), hn::IfThenElse(hn::IsNaN(v), v, kept), to, span);
}

template <class Span>
HWY_INLINE void store_stochastic(FloatVector v, IntVector number, Float16* to, Span span) {
  const FloatTag d;
  const WordTag dw;
  const auto bits = hn::BitCast(dw, v), magnitude = hn::And(bits, hn::Set(dw, 0x7fffffffu));
  const auto sign = hn::BitCast(d, hn::Xor(bits, magnitude));
  // Above 2^-14, as bf16; below, in steps of 2^-24. What reaches 2^16 is infinite once it is rounded, which is then exact.
  const auto moved = hn::Add(magnitude, hn::BitCast(dw, hn::ShiftRight<3>(number)));
  const auto normal = hn::BitCast(d, hn::And(moved, hn::Set(dw, 0xffffe000u)));
  const auto steps = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p24f));
  const auto below = hn::Min(steps, hn::Set(d, 1024.0f));
  const auto tiny = hn::Mul(hn::Floor(hn::Add(below, uniform_of(number))), hn::Set(d, 0x1p-24f));
  const auto finite = hn::IfThenElse(hn::Lt(steps, hn::Set(d, 1024.0f)), tiny, normal);
  const auto rounded = hn::Or(finite, sign);
  const auto special = hn::Gt(hn::BitCast(IntTag(), magnitude), hn::Set(IntTag(), 0x7f7fffff));
  store(d, hn::IfThenElse(hn::RebindMask(d, special), v, rounded), to, span);
}

template <class T, class Source>
HWY_INLINE void encode_floats(const Source& source, int64_t count, bool stochastic, float* error, T* to,
                              const Noise& noise) {
  const FloatTag d;
  Numbers numbers;
  for (int64_t at = 0; at < count; at += ops::grain) {
    const int64_t some = std::min(ops::grain, count - at);
    if (stochastic) numbers.draw(noise, at, some);
    const uint16_t* from = numbers.from();
    const Source x = source + at;
    each_vector(d, some, [&](int64_t i, auto span) HWY_ATTR {
      const auto v = x.one(i, span);
      T* place = to + at + i;
      if constexpr (std::is_same_v<T, float>) {
        store(d, v, place, span);
      } else {
        if (stochastic)
          store_stochastic(v, load_number(from + i), place, span);
        else
          store(d, v, place, span);
      }
      if (error != nullptr) {
        const auto lost = hn::Sub(v, load(d, place, span));
        store(d, hn::IfThenElseZero(hn::IsFinite(lost), lost), error + at + i, span);
      }
    });
  }
}

// ---- Back to values -----------------------------------------------------------------------------------------------

/// Readers: values of a source as quads. `open` is called where a block begins, in order.

template <class T>
struct Raw {
  const T* from;
  HWY_INLINE int64_t block(int64_t count) const { return count; }
  struct Opened {};
  HWY_INLINE Opened open(int64_t) const { return {}; }
  HWY_INLINE static constexpr bool plain(int64_t) { return false; }
  HWY_INLINE Quad quad(int64_t i, Opened) const { return load_quad(from + i); }
  HWY_INLINE Quad part(int64_t i, int64_t count, Opened) const {
    HWY_ALIGN T some[quad_size] = {};
    std::memcpy(some, from + i, static_cast<size_t>(count) * sizeof(T));
    return load_quad(some);
  }
};

template <int bits>
struct Coded {
  const uint8_t* codes;
  const uint8_t* scales;
  int64_t elements;  ///< of a block

  using Opened = FloatVector;  ///< the scale
  HWY_INLINE int64_t block(int64_t) const { return elements; }
  HWY_INLINE Opened open(int64_t b) const { return hn::Set(FloatTag(), scale(b)); }
  /// Whether no value of the block but zeros is below 2^-126, or a NaN.
  HWY_INLINE bool plain(int64_t b) const { return scale(b) >= std::numeric_limits<float>::min(); }
  HWY_INLINE Quad quad(int64_t i, Opened opened) const { return decode(codes + i * bits / 8, opened); }
#if HWY_TARGET == HWY_AVX3
  /// 4-bit codes to bf16: all sixteen values are worked out once.
  HWY_INLINE void decode_block(int64_t b, int64_t begin, int64_t end, Bfloat16* to) const {
    const FloatVector codes_in_order{_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1)};
    const FloatVector all = hn::Mul(codes_in_order, open(b));
    __m512i table;
    if (has_native_bfloat16 && plain(b)) {
      table = native_bfloat16({all, all});
    } else {
      HWY_ALIGN Bfloat16 values[32];
      store(FloatTag(), all, values, Whole{});
      store(FloatTag(), all, values + 16, Whole{});
      table = _mm512_load_si512(values);
    }
    int64_t i = begin;
    for (; i + 32 <= end; i += 32) _mm512_storeu_si512(to + i, look_up_32(codes + i / 2, in_order, table));
    if (i < end) {
      HWY_ALIGN uint8_t some[16] = {};
      HWY_ALIGN Bfloat16 decoded[32];
      std::memcpy(some, codes + i / 2, static_cast<size_t>(divide_up(end - i, 2)));
      _mm512_store_si512(decoded, look_up_32(some, in_order, table));
      std::memcpy(to + i, decoded, static_cast<size_t>(end - i) * sizeof(Bfloat16));
    }
  }
#endif
  HWY_INLINE Quad part(int64_t i, int64_t count, Opened opened) const {
    HWY_ALIGN uint8_t some[quad_size * bits / 8] = {};
    std::memcpy(some, codes + i * bits / 8, static_cast<size_t>(divide_up(count * bits, 8)));
    return decode(some, opened);
  }

 private:
#if HWY_TARGET == HWY_AVX3
  /// Values of 32 codes in 16 bits each. Lanes of 128 bits pick the bytes that hold their codes, words shift theirs down,
  /// and a table of the sixteen values (twice, as a fifth bit is anything) is looked up.
  HWY_INLINE static __m512i look_up_32(const uint8_t* from, const Nibbles& places, __m512i table) {
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m512i words = _mm512_shuffle_epi8(all, _mm512_load_si512(places.bytes));
    return _mm512_permutexvar_epi16(_mm512_srlv_epi16(words, _mm512_load_si512(places.shifts)), table);
  }
#endif
  HWY_INLINE float scale(int64_t b) const {
    float result;
    std::memcpy(&result, scales + b * int64_t{sizeof(float)}, sizeof(result));
    return result;
  }
  HWY_INLINE static Quad decode(const uint8_t* from, FloatVector by) {
    const FloatTag d;
    const IntTag di;
    if constexpr (bits == 8) {
      const hn::Rebind<int8_t, FloatTag> narrow;
      return four_of([=](int k) HWY_ATTR {
        const auto code = hn::LoadU(narrow, reinterpret_cast<const int8_t*>(from) + k * lanes);
        return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, code)), by);
      });
    } else {
#if HWY_TARGET == HWY_AVX3
      // As bf16, which holds a code exactly: elements i and 16 + i in lane i.
      const __m512i table = _mm512_load_si512(code_values.of);
      const __m512i first = look_up_32(from, in_halves, table), second = look_up_32(from + 16, in_halves, table);
      const auto low = [&](__m512i pairs) HWY_ATTR {
        return hn::Mul(FloatVector{_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))}, by);
      };
      const auto high = [&](__m512i pairs) HWY_ATTR {
        const __m512i upper = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
        return hn::Mul(FloatVector{_mm512_castsi512_ps(upper)}, by);
      };
      return {low(first), high(first), low(second), high(second)};
#else
      return four_of([=](int k) HWY_ATTR {
#if HWY_TARGET == HWY_SCALAR
        const auto top = hn::Set(di, static_cast<int32_t>(uint32_t{from[k / 2]} << (k % 2 == 0 ? 28 : 24)));
#else
        uint32_t word = 0;
        std::memcpy(&word, from + k * lanes / 2, static_cast<size_t>(std::min<int64_t>(lanes / 2, 4)));
        const auto place = hn::Sub(hn::Set(di, 28), hn::ShiftLeft<2>(hn::Iota(di, 0)));
        const auto top = hn::Shl(hn::Set(di, static_cast<int32_t>(word)), place);
#endif
        return hn::Mul(hn::ConvertTo(d, hn::ShiftRight<28>(top)), by);
      });
#endif
    }
  }
};

HWY_INLINE Quad sum(const Quad& a) { return a; }
HWY_INLINE Quad sum(const Quad& x, const Quad& y) {
  return map([](FloatVector a, FloatVector b) HWY_ATTR { return hn::Add(a, b); }, x, y);
}

/// A reader within a block.
template <class Reader>
struct Within {
  const Reader& reader;
  typename Reader::Opened opened;
  HWY_INLINE Quad quad(int64_t i) const { return reader.quad(i, opened); }
  HWY_INLINE Quad part(int64_t i, int64_t count) const { return reader.part(i, count, opened); }
};

template <bool plain, class T, class... Readers>
HWY_INLINE void combine_block(int64_t begin, int64_t end, T* to, Within<Readers>... from) {
  int64_t i = begin;
  for (; i + quad_size <= end; i += quad_size) store_quad<plain>(sum(from.quad(i)...), to + i);
  if (i < end) {
    HWY_ALIGN T some[quad_size];
    store_quad<plain>(sum(from.part(i, end - i)...), some);
    std::memcpy(to + i, some, static_cast<size_t>(end - i) * sizeof(T));
  }
}

/// to[i] = the sum of one or two sources. `to` may be the memory of either.
template <class T, class... Readers>
HWY_INLINE void combine(int64_t count, T* to, const Readers&... from) {
  const int64_t block = std::min({from.block(count)...});
  int64_t b = 0;
  for (int64_t at = 0; at < count; at += block, ++b) {
    const int64_t end = std::min(at + block, count);
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, Bfloat16> && (std::is_same_v<Readers, Coded<4>> && ...) &&
                  sizeof...(Readers) == 1) {
      (from.decode_block(b, at, end, to), ...);
      continue;
    }
#endif
    if constexpr (std::is_same_v<T, Bfloat16> && sizeof...(Readers) == 1) {  // sums may cancel
      if ((from.plain(b) && ...)) {
        combine_block<true>(at, end, to, Within<Readers>{from, from.open(b)}...);
        continue;
      }
    }
    combine_block<false>(at, end, to, Within<Readers>{from, from.open(b)}...);
  }
}

/// f(reader) of `count` encoded values, from element `at` on, which is at a grain.
template <class F>
HWY_INLINE void with_reader(const Wire& wire, const void* in, int64_t at, int64_t count, const F& f) {
  const auto* bytes = static_cast<const uint8_t*>(in);
  const auto* scales = bytes + wire.code_bytes(count);
  if (wire.kind == WireKind::raw)
    with_storage(wire.dtype, [&](auto t) HWY_ATTR { f(Raw<decltype(t)>{static_cast<const decltype(t)*>(in) + at}); });
  else if (wire.kind == WireKind::int8)
    f(Coded<8>{bytes + at, scales + at / wire.block * int64_t{sizeof(float)}, wire.block});
  else
    f(Coded<4>{bytes + at / 2, scales + at / wire.block * int64_t{sizeof(float)}, wire.block});
}

void decode(const Wire& wire, const void* in, int64_t count, DType dtype, void* y) {
  with_storage(dtype, [&](auto t) HWY_ATTR {
    auto* to = static_cast<decltype(t)*>(y);
    with_reader(wire, in, 0, count, [&](auto reader) HWY_ATTR { combine(count, to, reader); });
  });
}

template <class Source>
HWY_INLINE void encode_source(const Wire& wire, const Source& source, int64_t count, float* error, void* out,
                              const Noise& noise) {
  auto* bytes = static_cast<uint8_t*>(out);
  switch (wire.kind) {
    case WireKind::int8:
      if (wire.stochastic)
        encode_codes<8, true>(wire, source, count, error, bytes, noise);
      else
        encode_codes<8, false>(wire, source, count, error, bytes, noise);
      break;
    case WireKind::int4:
      if (wire.stochastic)
        encode_codes<4, true>(wire, source, count, error, bytes, noise);
      else
        encode_codes<4, false>(wire, source, count, error, bytes, noise);
      break;
    case WireKind::raw:
      with_storage(wire.dtype, [&](auto t) HWY_ATTR {
        encode_floats(source, count, wire.stochastic, error, static_cast<decltype(t)*>(out), noise);
      });
  }
}

/// `error` may be null.
void encode(const Wire& wire, DType dtype, const void* x, int64_t count, float* error, void* out, const Noise& noise) {
  if (wire.kind == WireKind::raw && error == nullptr && !wire.stochastic) {
    with_storage(wire.dtype, [&](auto t) HWY_ATTR {
      auto* to = static_cast<decltype(t)*>(out);
      with_storage(dtype, [&](auto from) HWY_ATTR {
        combine(count, to, Raw<decltype(from)>{static_cast<const decltype(from)*>(x)});
      });
    });
    return;
  }
  with_storage(dtype, [&](auto t) HWY_ATTR {
    const auto* from = static_cast<const decltype(t)*>(x);
    if (error == nullptr)
      encode_source(wire, Plain<decltype(t)>{from}, count, nullptr, out, noise);
    else
      encode_source(wire, Corrected<decltype(t)>{from, error}, count, error, out, noise);
  });
}

// ---- Sums ---------------------------------------------------------------------------------------------------------

/// Sums of a chunk of elements over a tree of sources.
struct ChunkSum {
  const Reduction& r;
  int64_t at, count;

  bool own(int64_t source) const { return source == r.own; }
  const void* memory(int64_t source) const { return pointer<const void>(r.sources[static_cast<size_t>(source)]); }

  template <class F>
  HWY_INLINE void with_source(int64_t source, const F& f) const {
    if (own(source))
      with_storage(r.own_dtype,
                   [&](auto t) HWY_ATTR { f(Raw<decltype(t)>{static_cast<const decltype(t)*>(memory(source)) + at}); });
    else
      with_reader(r.wire, memory(source), at, r.count, f);
  }

  void put(int64_t source, float* to) const {
    with_source(source, [&](auto reader) HWY_ATTR { combine(count, to, reader); });
  }
  template <class T>
  void add(int64_t source, const T* with, float* to) const {
    with_source(source, [&](auto reader) HWY_ATTR { combine(count, to, Raw<T>{with}, reader); });
  }
  /// The sum of a source and the next one.
  void put_two(int64_t source, float* to) const {
    const bool second = own(source + 1);
    if (own(source) || second) {
      const int64_t mine = second ? source + 1 : source, other = second ? source : source + 1;
      if (r.own_dtype == DType::f32) return add(other, static_cast<const float*>(memory(mine)) + at, to);
      if (r.own_dtype == DType::bf16) return add(other, static_cast<const Bfloat16*>(memory(mine)) + at, to);
      put(source, to);
      return add(source + 1, to, to);
    }
    with_reader(r.wire, memory(source), at, r.count, [&](auto first) HWY_ATTR {
      const auto skip =
          reinterpret_cast<const char*>(memory(source + 1)) - reinterpret_cast<const char*>(memory(source));
      combine(count, to, first, moved(first, skip));
    });
  }

  /// The sum at a level of the tree from `source` on. `free` are chunks' worth of memory.
  void sum_level(size_t level, int64_t source, float* to, float* free) const {
    const int64_t width = r.widths[level];
    if (level == 0) {
      if (width == 1) return put(source, to);
      put_two(source, to);
      for (int64_t i = 2; i < width; ++i) add(source + i, to, to);
      return;
    }
    int64_t below = 1;
    for (size_t l = 0; l < level; ++l) below *= r.widths[l];
    sum_level(level - 1, source, to, free);
    for (int64_t i = 1; i < width; ++i) {
      sum_level(level - 1, source + i * below, free, free + ops::grain);
      combine(count, to, Raw<float>{to}, Raw<float>{free});
    }
  }

 private:
  template <class T>
  static Raw<T> moved(const Raw<T>& reader, int64_t bytes) {
    return {reinterpret_cast<const T*>(reinterpret_cast<const char*>(reader.from) + bytes)};
  }
  template <int bits>
  static Coded<bits> moved(const Coded<bits>& reader, int64_t bytes) {
    return {reader.codes + bytes, reader.scales + bytes, reader.elements};
  }
};

void reduce(const Reduction& r) {
  HWY_ALIGN float chunks[most_levels + 1][ops::grain];
  const size_t top = r.widths.size() - 1;
  // Straight into the result, unless that would spoil a source that is still to be read.
  const bool direct = r.y_dtype == DType::f32 && !r.accumulate &&
                      (r.own < 0 || pointer<const void>(r.sources[static_cast<size_t>(r.own)]) != r.y || r.own < 2);
  // In chunks where sums wait in memory for others.
  const bool waiting = !(direct && top == 0 && r.sources.size() <= 2) &&
                       !(r.accumulate && r.sources.size() == 1 && r.y_dtype == DType::f32);
  const int64_t step = waiting ? ops::grain : r.count;
  for (int64_t at = 0; at < r.count; at += step) {
    const ChunkSum sum{r, at, std::min(step, r.count - at)};
    with_storage(r.y_dtype, [&](auto t) HWY_ATTR {
      using T = decltype(t);
      T* to = static_cast<T*>(r.y) + at;
      if constexpr (std::is_same_v<T, float>) {
        if (direct) return sum.sum_level(top, 0, to, chunks[0]);
        if (r.sources.size() == 1) return sum.add(0, to, to);
      }
      sum.sum_level(top, 0, chunks[0], chunks[1]);
      if (r.accumulate)
        combine(sum.count, to, Raw<T>{to}, Raw<float>{chunks[0]});
      else
        combine(sum.count, to, Raw<float>{chunks[0]});
    });
  }
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(encode);
HWY_EXPORT(decode);
HWY_EXPORT(reduce);

namespace {

bool is_float(DType type) { return type == DType::f32 || type == DType::bf16 || type == DType::f16; }

/// A wire that values of `type` can take. True if they travel as bytes, without arithmetic.
bool check_wire(const Wire& wire, DType type, int64_t count) {
  STRATA_CHECK(count >= 0, "{} values", count);
  if (wire.kind != WireKind::raw) {
    STRATA_CHECK(is_float(type), "{} on an {} wire", name_of(type), name_of(wire));
    STRATA_CHECK(wire.block >= 2 && ops::grain % wire.block == 0, "blocks of {}", wire.block);
    return false;
  }
  STRATA_CHECK(type == wire.dtype || (is_float(type) && is_float(wire.dtype)), "{} on a wire of {}", name_of(type),
               name_of(wire.dtype));
  return type == wire.dtype;
}

/// Sums of numbers that are neither encoded nor many.
template <class T>
struct Tree {
  const Reduction& r;
  T sum(size_t levels, size_t source, int64_t i) const {
    if (levels == 0) return pointer<const T>(r.sources[source])[i];
    size_t below = 1;
    for (size_t l = 0; l + 1 < levels; ++l) below *= static_cast<size_t>(r.widths[l]);
    T total = sum(levels - 1, source, i);
    for (size_t c = 1; c < static_cast<size_t>(r.widths[levels - 1]); ++c)
      total += sum(levels - 1, source + c * below, i);
    return total;
  }
  void run() const {
    T* y = static_cast<T*>(r.y);
    for (int64_t i = 0; i < r.count; ++i) {
      const T total = sum(r.widths.size(), 0, i);
      y[i] = r.accumulate ? y[i] + total : total;
    }
  }
};

}  // namespace

void CpuDevice::encode(const Wire& wire, DType dtype, Address x, int64_t n, Address out, const Noise& noise) {
  if (check_wire(wire, dtype, n))
    std::memcpy(pointer<void>(out), pointer<const void>(x), static_cast<size_t>(wire.bytes(n)));
  else
    HWY_DYNAMIC_DISPATCH(encode)(wire, dtype, pointer<const void>(x), n, nullptr, pointer<void>(out), noise);
}

void CpuDevice::encode_with_feedback(const Wire& wire, DType dtype, Address x, int64_t n, Address error, Address out,
                                     const Noise& noise) {
  check_wire(wire, dtype, n);
  STRATA_CHECK(is_float(dtype), "feedback of {}", name_of(dtype));
  HWY_DYNAMIC_DISPATCH(encode)
  (wire, dtype, pointer<const void>(x), n, pointer<float>(error), pointer<void>(out), noise);
}

void CpuDevice::decode(const Wire& wire, Address in, int64_t n, DType dtype, Address y) {
  if (check_wire(wire, dtype, n))
    std::memcpy(pointer<void>(y), pointer<const void>(in), static_cast<size_t>(wire.bytes(n)));
  else
    HWY_DYNAMIC_DISPATCH(decode)(wire, pointer<const void>(in), n, dtype, pointer<void>(y));
}

void CpuDevice::reduce(const Wire& wire, std::span<const Address> sources, std::span<const int64_t> widths, int own,
                       DType own_dtype, int64_t n, DType y_dtype, Address y, bool accumulate) {
  check_wire(wire, y_dtype, n);
  const auto count = static_cast<int64_t>(sources.size());
  STRATA_CHECK(own >= -1 && own < count, "source {} of {}", own, count);
  STRATA_CHECK(own < 0 || own_dtype == y_dtype || (is_float(own_dtype) && is_float(y_dtype)), "{} added to {}",
               name_of(own_dtype), name_of(y_dtype));
  // Widths of 1 bracket nothing.
  int64_t kept[most_levels], product = 1;
  size_t levels = 0;
  for (const int64_t width : widths) {
    STRATA_CHECK(width >= 1, "a width of {}", width);
    product *= width;
    if (width == 1) continue;
    STRATA_CHECK(levels < most_levels, "sums over more than {} levels", most_levels);
    kept[levels++] = width;
  }
  if (levels == 0) kept[levels++] = 1;
  STRATA_CHECK(product == count && count >= 1, "{} sources for widths that make {}", count, product);
  const Reduction r = {wire, sources, {kept, levels}, own, own_dtype, n, y_dtype, pointer<void>(y), accumulate};
  if (y_dtype == DType::f64)
    Tree<double>{r}.run();
  else if (y_dtype == DType::i64)
    Tree<uint64_t>{r}.run();  // which may wrap
  else
    HWY_DYNAMIC_DISPATCH(reduce)(r);
}

}  // namespace strata::device::cpu
#endif
