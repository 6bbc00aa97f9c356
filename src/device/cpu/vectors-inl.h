// Loops over float vectors, partial loads and stores, and storage in fewer bits. Included by sources that are compiled
// once for each instruction set, hence the toggled guard.
//
// A tail goes through the very arithmetic of the body, with fewer lanes stored, so an element's bits never depend on
// where in a vector it lies.

#if defined(STRATA_DEVICE_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_DEVICE_CPU_VECTORS_INL_H_
#undef STRATA_DEVICE_CPU_VECTORS_INL_H_
#else
#define STRATA_DEVICE_CPU_VECTORS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "core/types.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

/// A whole vector, or its first lanes only.
struct Whole {};
struct Part {
  size_t count;
};

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from, Whole) {
  return hn::LoadU(d, from);
}

/// The other lanes are zero; memory behind them is not touched.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from, Part part) {
  if constexpr (HWY_MEM_OPS_MIGHT_FAULT) {
    HWY_ALIGN hn::TFromD<D> lanes[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)] = {};
    std::memcpy(lanes, from, part.count * sizeof(hn::TFromD<D>));
    return hn::Load(d, lanes);
  } else {
    return hn::MaskedLoad(hn::FirstN(d, part.count), d, from);
  }
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* to, Whole) {
  hn::StoreU(v, d, to);
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* to, Part part) {
  if constexpr (HWY_MEM_OPS_MIGHT_FAULT) {
    HWY_ALIGN hn::TFromD<D> lanes[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
    hn::Store(v, d, lanes);
    std::memcpy(to, lanes, part.count * sizeof(hn::TFromD<D>));
  } else {
    hn::BlendedStore(v, hn::FirstN(d, part.count), d, to);
  }
}

/// Values in memory in fewer bits than they are computed with: widened when loaded, rounded to nearest even when stored.
using Bfloat16 = hwy::bfloat16_t;
using Float16 = hwy::float16_t;

template <class Span>
HWY_INLINE FloatVector load(FloatTag d, const Bfloat16* from, Span span) {
  const hn::Rebind<uint16_t, FloatTag> narrow;
  const hn::RebindToUnsigned<FloatTag> wide;
  const auto bits = load(narrow, reinterpret_cast<const uint16_t*>(from), span);
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}

/// The nearest bf16, ties to even, in the upper half of each lane; the lower half is anything.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<FloatTag>> bfloat16_bits(FloatTag d, FloatVector v) {
  const hn::RebindToUnsigned<FloatTag> wide;
  const auto bits = hn::BitCast(wide, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(wide, 0x7fffu)));
  // A NaN stays one: its payload may not be carried into the sign or cut off.
  return hn::BitCast(wide,
                     hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(wide, 0x7fc00000u)), hn::BitCast(d, rounded)));
}

template <class Span>
HWY_INLINE void store(FloatTag d, FloatVector v, Bfloat16* to, Span span) {
  const hn::Rebind<uint16_t, FloatTag> narrow;
  const auto result = hn::ShiftRight<16>(bfloat16_bits(d, v));
  store(narrow, hn::DemoteTo(narrow, hn::BitCast(hn::RebindToSigned<FloatTag>(), result)),
        reinterpret_cast<uint16_t*>(to), span);
}

template <class Span>
HWY_INLINE FloatVector load(FloatTag d, const Float16* from, Span span) {
  const hn::Rebind<uint16_t, FloatTag> narrow;
  const auto bits = load(narrow, reinterpret_cast<const uint16_t*>(from), span);
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSE4
  // No instruction for it, and the library's stand-in knows no infinity. 112 more on the exponent; twice where it is the
  // highest (infinity, NaN); where it is zero, one more and 2^-14 subtracted.
  const hn::RebindToUnsigned<FloatTag> wide;
  const auto all = hn::PromoteTo(wide, bits);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(all, hn::Set(wide, 0x7fffu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(all, hn::Set(wide, 0x8000u)));
  const auto shifted = hn::Add(magnitude, hn::Set(wide, 0x38000000u));
  const auto special = hn::Add(shifted, hn::Set(wide, 0x38000000u));
  const auto tiny = hn::BitCast(wide, hn::Sub(hn::BitCast(d, hn::Add(shifted, hn::Set(wide, 0x00800000u))),
                                              hn::BitCast(d, hn::Set(wide, 0x38800000u))));
  const auto chosen = hn::IfThenElse(hn::Gt(magnitude, hn::Set(wide, 0x0f7fffffu)), special,
                                     hn::IfThenElse(hn::Lt(magnitude, hn::Set(wide, 0x00800000u)), tiny, shifted));
  return hn::BitCast(d, hn::Or(chosen, sign));
#else
  const hn::Rebind<Float16, FloatTag> half;
  return hn::PromoteTo(d, hn::BitCast(half, bits));
#endif
}

template <class Span>
HWY_INLINE void store(FloatTag d, FloatVector v, Float16* to, Span span) {
  const hn::Rebind<uint16_t, FloatTag> narrow;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSE4
  // No instruction for it, and the library's stand-in truncates. Three cases: too large or NaN; below 2^-14, where adding
  // 0.5 leaves the rounded fraction in the low bits; else 112 off the exponent and rounding at bit 13.
  const hn::RebindToUnsigned<FloatTag> wide;
  const auto magnitude = hn::BitCast(wide, hn::Abs(v));
  const auto sign = hn::ShiftRight<16>(hn::Xor(hn::BitCast(wide, v), magnitude));
  const auto huge =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(wide, 0x7f800000u)), hn::Set(wide, 0x7e00u), hn::Set(wide, 0x7c00u));
  const auto tiny = hn::Sub(hn::BitCast(wide, hn::Add(hn::Abs(v), hn::Set(d, 0.5f))), hn::Set(wide, 0x3f000000u));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(wide, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(wide, 0x38000000u - 0xfffu)), odd));
  const auto chosen = hn::IfThenElse(hn::Gt(magnitude, hn::Set(wide, 0x477fffffu)), huge,
                                     hn::IfThenElse(hn::Lt(magnitude, hn::Set(wide, 0x38800000u)), tiny, normal));
  const auto bits = hn::BitCast(hn::RebindToSigned<FloatTag>(), hn::Or(chosen, sign));
  store(narrow, hn::DemoteTo(narrow, bits), reinterpret_cast<uint16_t*>(to), span);
#else
  (void)d;
  const hn::Rebind<Float16, FloatTag> half;
  store(narrow, hn::BitCast(narrow, hn::DemoteTo(half, v)), reinterpret_cast<uint16_t*>(to), span);
#endif
}

/// Calls f(T{}), T the type that values of `type` have in memory.
template <class F>
HWY_INLINE void with_storage(DType type, const F& f) {
  switch (type) {
    case DType::bf16: f(Bfloat16{}); break;
    case DType::f16: f(Float16{}); break;
    default: f(float{});
  }
}

template <class D>
HWY_INLINE hn::Vec<D> keep(D, hn::Vec<D> v, Whole) {
  return v;
}

/// Zero in the lanes that do not count.
template <class D>
HWY_INLINE hn::Vec<D> keep(D d, hn::Vec<D> v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(d, part.count), v);
}

template <class D>
HWY_INLINE hn::Mask<D> first_lanes(D d, Whole) {
  return hn::FirstN(d, hn::Lanes(d));
}
template <class D>
HWY_INLINE hn::Mask<D> first_lanes(D d, Part part) {
  return hn::FirstN(d, part.count);
}

/// Asks for `count` elements; past the end of memory that does nothing.
template <class T>
HWY_INLINE void prefetch(const T* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T))) hwy::Prefetch(from + i);
}

/// f(i, Whole or Part) for i = 0, lanes, 2 lanes, ... below count.
template <class D, class F>
HWY_INLINE void each_vector(D d, int64_t count, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(i, Whole{});
  if (i < count) f(i, Part{static_cast<size_t>(count - i)});
}

/// Sum over f(i, Whole or Part), which yields a vector, in an order that depends on `count` and the vector width only.
template <class D, class F>
HWY_INLINE hn::TFromD<D> sum_vectors(D d, int64_t count, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, f(i, Whole{}));
    s1 = hn::Add(s1, f(i + lanes, Whole{}));
    s2 = hn::Add(s2, f(i + 2 * lanes, Whole{}));
    s3 = hn::Add(s3, f(i + 3 * lanes, Whole{}));
  }
  for (; i + lanes <= count; i += lanes) s0 = hn::Add(s0, f(i, Whole{}));
  if (i < count) {
    const Part part{static_cast<size_t>(count - i)};
    s1 = hn::Add(s1, keep(d, f(i, part), part));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_DEVICE_CPU_VECTORS_INL_H_
