// Loops over float vectors, partial loads and stores, and the functions that activations and softmax need. Included by
// sources that are compiled once for each instruction set, hence the toggled guard.
//
// A tail goes through the very arithmetic of the body, with fewer lanes stored, so an element's bits never depend on
// where in a vector it lies.

#if defined(STRATA_DEVICE_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_DEVICE_CPU_VECTORS_INL_H_
#undef STRATA_DEVICE_CPU_VECTORS_INL_H_
#else
#define STRATA_DEVICE_CPU_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

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

template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, Whole) {
  return hn::LoadU(d, from);
}

/// The other lanes are zero; memory behind them is not touched.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, Part part) {
  if constexpr (HWY_MEM_OPS_MIGHT_FAULT) {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)] = {};
    std::memcpy(lanes, from, part.count * sizeof(T));
    return hn::Load(d, lanes);
  } else {
    return hn::MaskedLoad(hn::FirstN(d, part.count), d, from);
  }
}

template <class D, typename T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* to, Whole) {
  hn::StoreU(v, d, to);
}

template <class D, typename T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* to, Part part) {
  if constexpr (HWY_MEM_OPS_MIGHT_FAULT) {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(v, d, lanes);
    std::memcpy(to, lanes, part.count * sizeof(T));
  } else {
    hn::BlendedStore(v, hn::FirstN(d, part.count), d, to);
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

/// Two sums at once: f(i, Whole or Part) yields {first, second}.
struct Sums {
  float first = 0, second = 0;
};
struct FloatVectors {
  FloatVector first, second;
};
template <class F>
HWY_INLINE Sums sum_vectors_twice(FloatTag d, int64_t count, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a0 = hn::Zero(d), a1 = hn::Zero(d), b0 = hn::Zero(d), b1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const FloatVectors v0 = f(i, Whole{}), v1 = f(i + lanes, Whole{});
    a0 = hn::Add(a0, v0.first);
    b0 = hn::Add(b0, v0.second);
    a1 = hn::Add(a1, v1.first);
    b1 = hn::Add(b1, v1.second);
  }
  for (; i + lanes <= count; i += lanes) {
    const FloatVectors v = f(i, Whole{});
    a0 = hn::Add(a0, v.first);
    b0 = hn::Add(b0, v.second);
  }
  if (i < count) {
    const Part part{static_cast<size_t>(count - i)};
    const FloatVectors v = f(i, part);
    a1 = hn::Add(a1, keep(d, v.first, part));
    b1 = hn::Add(b1, keep(d, v.second, part));
  }
  return {hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, a1))), hn::GetLane(hn::SumOfLanes(d, hn::Add(b0, b1)))};
}

/// e^x within 2 units in the last place; 0 below -87.6, infinity above 88.4; NaN stays NaN. With n = round(x / ln 2)
/// and r = x - n ln 2, e^x = 2^n e^r. The polynomial is a Chebyshev fit to (e^r - 1 - r) / r^2 over |r| <= ln(2)/2,
/// relative error of e^r 1e-8.
template <class D>
HWY_INLINE hn::Vec<D> exp_of(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // At the lower end 2^n comes out as zero, at the upper end as infinity. Minimum and maximum take the second operand
  // if one is NaN, on x86.
  const auto bounded = hn::Max(hn::Set(d, -88.0f), hn::Min(hn::Set(d, 88.8f), x));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; 127 more is the exponent's bias.
  const auto shift = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(bounded, hn::Set(d, 1.44269504f), shift), n = hn::Sub(shifted, shift);
  // ln 2 in two parts, the first short enough that n times it is exact also without fused multiply-add.
  const auto r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), bounded));
  auto p = hn::Set(d, 0.001392621347f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008363202972f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166655444f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666657685f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto y = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
  if constexpr (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR) {
    return y;
  } else {
    return hn::IfThenElse(hn::IsNaN(x), x, y);
  }
}

/// 1 / (1 + e^-x).
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_of(d, hn::Neg(x))));
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_DEVICE_CPU_VECTORS_INL_H_
