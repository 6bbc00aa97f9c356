// core/random.h's philox on vectors. Included like vectors-inl.h, which it builds on.

#if defined(STRATA_DEVICE_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_DEVICE_CPU_PHILOX_INL_H_
#undef STRATA_DEVICE_CPU_PHILOX_INL_H_
#else
#define STRATA_DEVICE_CPU_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "device/cpu/philox.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;

#if HWY_TARGET == HWY_AVX3
template <class V>
HWY_INLINE V xor_of(V a, V b, V c) {
  return V{_mm512_ternarylogic_epi64(a.raw, b.raw, c.raw, 0x96)};
}
#else
template <class V>
HWY_INLINE V xor_of(V a, V b, V c) {
  return hn::Xor(a, hn::Xor(b, c));
}
#endif

#if HWY_TARGET != HWY_SCALAR
using CounterTag = hn::RepartitionToWide<WordTag>;
using Counters = hn::Vec<CounterTag>;

/// Places of counters such that interleaving their words (below) puts them in order: 0, half, 1, half + 1, ...
HWY_INLINE Counters interleaved_places() {
  const CounterTag wide;
  const auto lane = hn::Iota(wide, 0), odd = hn::And(lane, hn::Set(wide, uint64_t{1}));
  return hn::Add(hn::ShiftRight<1>(lane),
                 hn::And(hn::Sub(hn::Zero(wide), odd), hn::Set(wide, uint64_t{hn::Lanes(wide) / 2})));
}

/// The four words of each counter: a 64-bit lane each, in its lower half; the upper half is anything, also before.
struct PhiloxWords {
  Counters c0, c1, c2, c3;
};

template <int rounds>
HWY_INLINE PhiloxWords philox_of(const PhiloxKeys<rounds>& keys, PhiloxWords c) {
  const WordTag d;
  const CounterTag wide;
  const auto product = [=](auto a, uint32_t number)
                           HWY_ATTR { return hn::MulEven(hn::BitCast(d, a), hn::Set(d, number)); };
#pragma GCC unroll 10
  for (size_t round = 0; round < rounds; ++round) {
    const auto p0 = product(c.c0, 0xD2511F53u), p1 = product(c.c2, 0xCD9E8D57u);
    c.c0 = xor_of(hn::ShiftRight<32>(p1), c.c1, hn::Set(wide, keys.of[2 * round]));
    c.c2 = xor_of(hn::ShiftRight<32>(p0), c.c3, hn::Set(wide, keys.of[2 * round + 1]));
    c.c1 = p1;
    c.c3 = p0;
  }
  return c;
}

/// The lower halves of two: `low` below `high` in each lane.
HWY_INLINE Words join_words(Counters low, Counters high) {
  const WordTag d;
  return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(high)), hn::BitCast(d, low));
}
#endif

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_DEVICE_CPU_PHILOX_INL_H_
