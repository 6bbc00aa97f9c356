// Two float vectors at a time: loads, stores, arithmetic, and the exponentials that activations and softmax need. Included
// like vectors-inl.h, which it builds on.
//
// Written this way because a processor looks only so far ahead: operations on one vector that wait for each other leave it
// idle, and two vectors' worth, each step next to its twin, keep it busy.

#if defined(STRATA_DEVICE_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_DEVICE_CPU_PAIRS_INL_H_
#undef STRATA_DEVICE_CPU_PAIRS_INL_H_
#else
#define STRATA_DEVICE_CPU_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device/cpu/native.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

struct Pair {
  FloatVector first, second;
};
/// Elements of one.
constexpr int64_t pair_size = 2 * static_cast<int64_t>(HWY_LANES(float));

/// Two vectors' worth of consecutive elements, split as is cheapest: bf16 into even and odd ones, others into halves. So
/// only pairs of one type go together.
template <class T>
HWY_INLINE Pair load_pair(const T* from, Whole) {
  const FloatTag d;
  return {load(d, from, Whole{}), load(d, from + hn::Lanes(d), Whole{})};
}

template <class T>
HWY_INLINE void store_pair(Pair v, T* to, Whole) {
  const FloatTag d;
  store(d, v.first, to, Whole{});
  store(d, v.second, to + hn::Lanes(d), Whole{});
}

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE Pair load_pair(const Bfloat16* from, Whole) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> wide;
  const hn::Repartition<uint16_t, FloatTag> narrow;
  const auto both = hn::BitCast(wide, hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(from)));
  return {hn::BitCast(d, hn::ShiftLeft<16>(both)), hn::BitCast(d, hn::And(both, hn::Set(wide, 0xffff0000u)))};
}

#if HWY_TARGET == HWY_AVX3
/// The first vector's bf16 in the lower half, the second's in the upper one: has_native_bfloat16 only, as Highway 1.0.3
/// does not know the instruction.
HWY_INLINE __m512i native_bfloat16(Pair v) {
  __m512i halves;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(v.second.raw), "v"(v.first.raw));
  return halves;
}
#endif

HWY_INLINE void store_pair(Pair v, Bfloat16* to, Whole) {
  const FloatTag d;
  const hn::Repartition<uint16_t, FloatTag> narrow;
  uint16_t* bits = reinterpret_cast<uint16_t*>(to);
#if HWY_TARGET == HWY_AVX3
  if (has_native_bfloat16) {
    const auto places = hn::Load(narrow, bfloat16_places.of);
    const __m512i mixed = _mm512_permutexvar_epi16(places.raw, native_bfloat16(v));
    return hn::StoreU(hn::Vec<decltype(narrow)>{mixed}, narrow, bits);
  }
#endif
  const auto even = hn::ShiftRight<16>(bfloat16_bits(d, v.first)), odd = bfloat16_bits(d, v.second);
  hn::StoreU(hn::OddEven(hn::BitCast(narrow, odd), hn::BitCast(narrow, even)), narrow, bits);
}
#endif

/// Fewer elements than two vectors have; values past them are zero.
template <class T>
HWY_INLINE Pair load_pair(const T* from, Part part) {
  HWY_ALIGN T elements[2 * HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(elements, from, part.count * sizeof(T));
  return load_pair(elements, Whole{});
}

template <class T>
HWY_INLINE void store_pair(Pair v, T* to, Part part) {
  HWY_ALIGN T elements[2 * HWY_MAX_BYTES / sizeof(float)];
  store_pair(v, elements, Whole{});
  std::memcpy(to, elements, part.count * sizeof(T));
}

/// Pairs in halves whatever the type, to go with pairs of another one.
template <class T>
HWY_INLINE Pair load_halves(const T* from) {
  const FloatTag d;
  return {load(d, from, Whole{}), load(d, from + hn::Lanes(d), Whole{})};
}
template <class T>
HWY_INLINE void store_halves(Pair v, T* to) {
  const FloatTag d;
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, Bfloat16>)
    if (has_native_bfloat16) return _mm512_storeu_si512(to, native_bfloat16(v));
#endif
  store(d, v.first, to, Whole{});
  store(d, v.second, to + hn::Lanes(d), Whole{});
}

/// to[i] = from[i], rounded.
template <class T>
HWY_INLINE void round_to(const float* from, T* to, int64_t count) {
  const FloatTag d;
  int64_t begin = 0;
  for (; begin + pair_size <= count; begin += pair_size) store_halves(load_halves(from + begin), to + begin);
  each_vector(d, count - begin,
              [=](int64_t i, auto span) HWY_ATTR { store(d, load(d, from + begin + i, span), to + begin + i, span); });
}

/// f(i, Whole or Part) for i = 0, 2 lanes, 4 lanes, ... below count.
template <class F>
HWY_INLINE void each_pair(int64_t count, const F& f) {
  constexpr int64_t step = pair_size;
  int64_t i = 0;
  for (; i + step <= count; i += step) f(i, Whole{});
  if (i < count) f(i, Part{static_cast<size_t>(count - i)});
}

/// to[i] = f(from[i]...), f a function of pairs. `to` may be any of `from`.
template <class T, class F, class... From>
HWY_INLINE void map(int64_t count, T* to, const F& f, const From*... from) {
  static_assert((std::is_same_v<T, From> && ...));
  each_pair(count, [=](int64_t i, auto span) HWY_ATTR { store_pair(f(load_pair(from + i, span)...), to + i, span); });
}

HWY_INLINE Pair constant(float value) {
  const auto v = hn::Set(FloatTag(), value);
  return {v, v};
}
HWY_INLINE Pair Abs(Pair a) { return {hn::Abs(a.first), hn::Abs(a.second)}; }
HWY_INLINE Pair Add(Pair a, Pair b) { return {hn::Add(a.first, b.first), hn::Add(a.second, b.second)}; }
HWY_INLINE Pair Sub(Pair a, Pair b) { return {hn::Sub(a.first, b.first), hn::Sub(a.second, b.second)}; }
HWY_INLINE Pair Mul(Pair a, Pair b) { return {hn::Mul(a.first, b.first), hn::Mul(a.second, b.second)}; }
HWY_INLINE Pair Div(Pair a, Pair b) { return {hn::Div(a.first, b.first), hn::Div(a.second, b.second)}; }
/// Of a number and a NaN, b on x86.
#if HWY_TARGET == HWY_SCALAR
// The second if one is NaN, as the instructions of x86 have it.
HWY_INLINE Pair Min(Pair a, Pair b) {
  return {hn::IfThenElse(hn::Lt(a.first, b.first), a.first, b.first),
          hn::IfThenElse(hn::Lt(a.second, b.second), a.second, b.second)};
}
HWY_INLINE Pair Max(Pair a, Pair b) {
  return {hn::IfThenElse(hn::Gt(a.first, b.first), a.first, b.first),
          hn::IfThenElse(hn::Gt(a.second, b.second), a.second, b.second)};
}
#else
HWY_INLINE Pair Min(Pair a, Pair b) { return {hn::Min(a.first, b.first), hn::Min(a.second, b.second)}; }
HWY_INLINE Pair Max(Pair a, Pair b) { return {hn::Max(a.first, b.first), hn::Max(a.second, b.second)}; }
#endif
/// a b + c
HWY_INLINE Pair MulAdd(Pair a, Pair b, Pair c) {
  return {hn::MulAdd(a.first, b.first, c.first), hn::MulAdd(a.second, b.second, c.second)};
}
HWY_INLINE Pair MulSub(Pair a, Pair b, Pair c) {
  return {hn::MulSub(a.first, b.first, c.first), hn::MulSub(a.second, b.second, c.second)};
}
/// c - a b
HWY_INLINE Pair NegMulAdd(Pair a, Pair b, Pair c) {
  return {hn::NegMulAdd(a.first, b.first, c.first), hn::NegMulAdd(a.second, b.second, c.second)};
}
/// |a|, but at most `limit`, a positive number, also where a is infinite or no number.
HWY_INLINE Pair limited_abs(Pair a, float limit) {
#if HWY_TARGET == HWY_AVX3
  const auto one = [=](FloatVector v)
                       HWY_ATTR { return FloatVector{_mm512_range_ps(v.raw, hn::Set(FloatTag(), limit).raw, 0b1010)}; };
  return {one(a.first), one(a.second)};
#else
  return Min(Abs(a), constant(limit));
#endif
}
/// a, but at most `limit` from zero; anything where a is no number.
HWY_INLINE Pair limited(Pair a, float limit) {
#if HWY_TARGET == HWY_AVX3
  const auto one = [=](FloatVector v)
                       HWY_ATTR { return FloatVector{_mm512_range_ps(v.raw, hn::Set(FloatTag(), limit).raw, 0b0010)}; };
  return {one(a.first), one(a.second)};
#else
  return Max(constant(-limit), Min(constant(limit), a));
#endif
}

/// a with its sign turned where x is negative (or -0).
HWY_INLINE Pair turn_sign(Pair a, Pair x) {
  const auto sign = hn::SignBit(FloatTag());
  return {hn::Xor(a.first, hn::And(x.first, sign)), hn::Xor(a.second, hn::And(x.second, sign))};
}
/// 0 where x is negative (or -0), else 1.
HWY_INLINE Pair step(Pair x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> whole;
  const auto one = [=](FloatVector v) HWY_ATTR {
    const auto negative = hn::BroadcastSignBit(hn::BitCast(whole, v));
    return hn::AndNot(hn::BitCast(d, negative), hn::Set(d, 1.0f));
  };
  return {one(x.first), one(x.second)};
}

/// What exponentials of NaN are, where Max and Min have lost it: nowhere on x86 with vectors.
HWY_INLINE Pair keep_nan(Pair x, Pair result) {
  if constexpr (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR) {
    return result;
  } else {
    return {hn::IfThenElse(hn::IsNaN(x.first), x.first, result.first),
            hn::IfThenElse(hn::IsNaN(x.second), x.second, result.second)};
  }
}

HWY_INLINE Pair Floor(Pair a) { return {hn::Floor(a.first), hn::Floor(a.second)}; }
HWY_INLINE Pair Round(Pair a) { return {hn::Round(a.first), hn::Round(a.second)}; }

/// a 2^n for an integer n in [-127, 128], with AVX-512 a 2^floor(n) for any n: 0 or nearly at the lower end, infinity at
/// the upper one.
HWY_INLINE FloatVector scale_by(FloatVector a, FloatVector n) {
#if HWY_TARGET == HWY_AVX3
  return FloatVector{_mm512_scalef_ps(a.raw, n.raw)};
#else
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> whole;
  const auto exponent = hn::Add(hn::ConvertTo(whole, n), hn::Set(whole, 127));
  return hn::Mul(a, hn::BitCast(d, hn::ShiftLeft<23>(exponent)));
#endif
}
HWY_INLINE Pair scale_by(Pair a, Pair n) { return {scale_by(a.first, n.first), scale_by(a.second, n.second)}; }

/// e^x for x below 88.8, within 2 units in the last place; 0 below about -88; NaN stays NaN. With n = round(x / ln 2) and
/// r = x - n ln 2, e^x = 2^n e^r. The polynomial is a Chebyshev fit to (e^r - 1 - r) / r^2 over |r| <= ln(2)/2, relative
/// error of e^r 1e-8; its terms are grouped so that few wait for each other.
HWY_INLINE Pair exp_of(Pair x) {
  const Pair bounded = Max(constant(-88.0f), x), n = Round(Mul(bounded, constant(1.44269504f)));
  // ln 2 in two parts, the first short enough that n times it is exact also without fused multiply-add.
  const Pair r = NegMulAdd(n, constant(-2.12194440e-4f), NegMulAdd(n, constant(0.693359375f), bounded));
  const Pair squared = Mul(r, r), low = Add(r, constant(1.0f));
  const Pair middle = MulAdd(r, constant(0.1666657685f), constant(0.5f));
  Pair high = MulAdd(r, constant(0.008363202972f), constant(0.04166655444f));
  high = MulAdd(squared, constant(0.001392621347f), high);
  return keep_nan(x, scale_by(MulAdd(MulAdd(high, squared, middle), squared, low), n));
}

constexpr float log2_e = 1.44269504f;

/// 2^x: infinity, or 0 or nearly, where that is out of range; NaN stays NaN. Relative error by degree of the polynomial, a
/// minimax fit to 2^r over 0 <= r < 1, x = n + r: 8e-5 with 3, 3e-6 with 4, 1e-7 (fp32's rounding) with 6.
template <int degree>
HWY_INLINE Pair exp2_of(Pair x) {
  static_assert(degree == 3 || degree == 4 || degree == 6);
#if HWY_TARGET == HWY_AVX3
  // x - floor(x), and 0 if x is infinite; a 2^floor(x).
  const Pair r = {FloatVector{_mm512_reduce_ps(x.first.raw, 0b1001)},
                  FloatVector{_mm512_reduce_ps(x.second.raw, 0b1001)}};
  const Pair n = x;
#else
  const Pair bounded = Max(constant(-127.0f), Min(constant(128.0f), x)), n = Floor(bounded), r = Sub(bounded, n);
#endif
  Pair p;
  if constexpr (degree == 3) {
    p = MulAdd(r, constant(0.07802447236f), constant(0.2260672412f));
    p = MulAdd(p, r, constant(0.6958335517f));
    p = MulAdd(p, r, constant(0.9999251308f));
  } else if constexpr (degree == 4) {
    p = MulAdd(r, constant(0.01353416319f), constant(0.05201152798f));
    p = MulAdd(p, r, constant(0.2414426648f));
    p = MulAdd(p, r, constant(0.6930038581f));
    p = MulAdd(p, r, constant(1.000002597f));
  } else {
    p = MulAdd(r, constant(0.0002170230169f), constant(0.001243968357f));
    p = MulAdd(p, r, constant(0.009678840158f));
    p = MulAdd(p, r, constant(0.05548334324f));
    p = MulAdd(p, r, constant(0.2402298358f));
    p = MulAdd(p, r, constant(0.6931469839f));
    p = MulAdd(p, r, constant(1.0f));
  }
  return keep_nan(x, scale_by(p, n));
}

/// What results kept as T need of a function: all of fp32's bits, or a few more than bf16's.
template <class T>
inline constexpr bool exact = !std::is_same_v<T, Bfloat16>;

/// e^-x, to infinity where it must.
template <class T>
HWY_INLINE Pair exp_of_minus(Pair x) {
  if constexpr (exact<T>)
    return keep_nan(x, exp_of(Min(constant(88.8f), Sub(constant(-0.0f), x))));
  else
    return exp2_of<3>(Mul(x, constant(-log2_e)));
}

/// 1 / x, x positive: as exactly as can be or, where T is narrower than fp32, within 1e-4 of itself.
template <class T>
HWY_INLINE Pair reciprocal(Pair x) {
  if constexpr (!exact<T> && HWY_TARGET == HWY_AVX3) {
    return {hn::ApproximateReciprocal(x.first), hn::ApproximateReciprocal(x.second)};
  } else {
    return Div(constant(1.0f), x);
  }
}

/// 1 / (1 + e^-x).
template <class T>
HWY_INLINE Pair sigmoid(Pair x) {
  return reciprocal<T>(Add(constant(1.0f), exp_of_minus<T>(x)));
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_DEVICE_CPU_PAIRS_INL_H_
