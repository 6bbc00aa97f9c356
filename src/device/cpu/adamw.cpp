// AdamW in one pass over memory, with moments in fp32 or in blocks of 8-bit codes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/adamw.h"
#include "device/cpu/dynamic_codebook.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVector = hn::Vec<IntTag>;

/// One vector:  w -= decay w;  m = beta1 m + rest1 g;  v = beta2 v + rest2 g^2;
/// w -= step m / (sqrt(v / bias2) + epsilon), as torch.optim.AdamW.
HWY_INLINE void update(FloatTag d, const AdamW& a, float decay, FloatVector gradient, FloatVector& w, FloatVector& m,
                       FloatVector& v) {
  const auto g = hn::Mul(gradient, hn::Set(d, a.gradient_scale));
  m = hn::MulAdd(m, hn::Set(d, a.beta1), hn::Mul(g, hn::Set(d, a.rest1)));
  v = hn::MulAdd(v, hn::Set(d, a.beta2), hn::Mul(hn::Mul(g, g), hn::Set(d, a.rest2)));
  w = hn::NegMulAdd(w, hn::Set(d, decay), w);
  const auto denominator = hn::MulAdd(hn::Sqrt(v), hn::Set(d, a.inverse_root_bias2), hn::Set(d, a.epsilon));
  w = hn::NegMulAdd(hn::Set(d, a.step), hn::Div(m, denominator), w);
}

/// f(from, to, decay) on what of [begin, end) lies in a range.
template <class F>
HWY_INLINE void each_range(std::span<const ops::DecayRange> ranges, float decay, int64_t begin, int64_t end,
                           const F& f) {
  auto range = std::partition_point(ranges.begin(), ranges.end(), [=](const auto& r) { return r.end <= begin; });
  for (; range != ranges.end() && range->begin < end; ++range) {
    const int64_t from = std::max(begin, range->begin), to = std::min(end, range->end);
    if (from < to) f(from, to, range->decay ? decay : 0.0f);
  }
}

HWY_INLINE void update_full(const AdamWOperands& o, const AdamW& s, int64_t begin, int64_t end) {
  const FloatTag d;
  const float* gradient = o.gradient;
  float *weights = o.weights, *moment1 = static_cast<float*>(o.moment1), *moment2 = static_cast<float*>(o.moment2);
  const AdamW a = s;
  each_range(o.ranges, a.decay, begin, end, [=](int64_t from, int64_t to, float decay) HWY_ATTR {
    each_vector(d, to - from, [=](int64_t j, auto span) HWY_ATTR {
      const int64_t i = from + j;
      auto w = load(d, weights + i, span), m = load(d, moment1 + i, span), v = load(d, moment2 + i, span);
      update(d, a, decay, load(d, gradient + i, span), w, m, v);
      store(d, w, weights + i, span);
      store(d, m, moment1 + i, span);
      store(d, v, moment2 + i, span);
    });
  });
}

#if HWY_TARGET == HWY_AVX3
HWY_INLINE FloatVector at(const DynamicCodebook::Groups& table, IntVector group) {
  return FloatVector{_mm512_permutexvar_ps(group.raw, hn::Load(FloatTag(), table.data()).raw)};  // lower 4 bits count
}

/// The value of each code, of which there is one a lane.
template <bool Signed>
HWY_INLINE FloatVector decode(FloatTag d, const DynamicCodebook& book, IntVector code) {
  const IntTag di;
  const auto place = hn::Add(hn::ConvertTo(d, code), hn::Set(d, Signed ? -127.0f : 1.0f));
  const auto rank = Signed ? hn::Abs(place) : place;
  const auto odd = hn::MulAdd(rank, hn::Set(d, 2.0f), hn::Set(d, 1.0f));
  const auto group = hn::ShiftRight<23>(hn::BitCast(di, odd));
  const auto bracket = hn::MulAdd(rank, hn::Set(d, 18.0f), at(book.constant, group));
  const auto magnitude = hn::Mul(bracket, at(book.unit, group));
  return Signed ? hn::CopySignToAbs(magnitude, place) : magnitude;
}

/// The code whose value is nearest to x, |x| at most 1 (or a rounding above), the one nearer to zero of two.
template <bool Signed>
HWY_INLINE IntVector encode(FloatTag d, const DynamicCodebook& book, FloatVector x) {
  const IntTag di;
  const auto size = Signed ? hn::Abs(x) : x;
  const auto octaves = hn::ShiftRight<24>(hn::BitCast(di, hn::Max(size, hn::Set(d, 0x1p-23f))));
  const IntVector start{_mm512_permutexvar_epi32(octaves.raw, hn::Load(di, book.group.data()).raw)};
  const auto above = hn::RebindMask(di, hn::Gt(size, at(book.threshold, octaves)));
  const auto group = hn::IfThenElse(above, hn::Add(start, hn::Set(di, 1)), start);
  // The rank below, by a straight line; then whichever of it and the next is nearer. Distances are exact where it counts.
  const auto unit = at(book.unit, group), step = hn::Set(d, 18.0f), one = hn::Set(d, 1.0f);
  const auto rank = hn::Floor(hn::MulAdd(size, at(book.slope, group), at(book.offset, group)));
  const auto bracket = hn::MulAdd(rank, step, at(book.constant, group));
  const auto below = hn::Sub(size, hn::Mul(bracket, unit));
  const auto beyond = hn::Sub(hn::Mul(hn::Add(bracket, step), unit), size);
  const auto nearer = hn::IfThenElse(hn::Gt(below, beyond), hn::Add(rank, one), rank);
  const auto nearest = hn::Min(nearer, at(book.last, group));
  // There is a code for 1 and none for -1: the next one to it, 0, is nearest.
  const auto code =
      Signed ? hn::Max(hn::Add(hn::CopySignToAbs(nearest, x), hn::Set(d, 127.0f)), hn::Zero(d)) : hn::Sub(nearest, one);
  return IntVector{_mm512_cvttps_epi32(code.raw)};
}
#else
/// As above, with tables that any instruction set can read.
template <bool Signed>
HWY_INLINE FloatVector decode(FloatTag d, const DynamicCodebook& book, IntVector code) {
  return hn::GatherIndex(d, book.values.data(), code);
}

template <bool Signed>
HWY_INLINE IntVector encode(FloatTag d, const DynamicCodebook& book, FloatVector x) {
  const IntTag di;
  const auto size = hn::Abs(x);
  auto rank = hn::Zero(di);  // from zero's on: how many midpoints are below
  for (int32_t step = 128; step > 0; step /= 2) {
    const auto midpoint = hn::GatherIndex(d, book.midpoints.data(), hn::Add(rank, hn::Set(di, step - 1)));
    const auto above = hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(size, midpoint)));
    rank = hn::Add(rank, hn::And(above, hn::Set(di, step)));
  }
  if constexpr (!Signed) return rank;
  const auto negative = hn::VecFromMask(di, hn::Lt(hn::BitCast(di, x), hn::Zero(di)));
  return hn::Add(hn::Sub(hn::Xor(rank, negative), negative), hn::Set(di, 127));
}
#endif

template <class Span>
HWY_INLINE IntVector load_codes(const uint8_t* from, Span span) {
  const hn::Rebind<uint8_t, FloatTag> narrow;
  return hn::PromoteTo(IntTag(), load(narrow, from, span));
}

HWY_INLINE void store_codes(IntVector codes, uint8_t* to) {
#if HWY_TARGET == HWY_AVX3
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes.raw));
#else
  const hn::Rebind<uint8_t, FloatTag> narrow;
  hn::StoreU(hn::DemoteTo(narrow, codes), narrow, to);
#endif
}

/// codes[i] = the code nearest to values[i] / scale, for a block; returns the scale, the largest |value|. A block of
/// nothing but zeros, or of numbers too small to divide by, becomes zeros.
template <bool Signed>
HWY_INLINE float encode_block(const DynamicCodebook& book, const float* values, float largest, uint8_t* codes,
                              int64_t block) {
  const FloatTag d;
  const bool zero = largest < std::numeric_limits<float>::min();
  const auto inverse = hn::Set(d, zero ? 0.0f : 1 / largest);
  for (int64_t i = 0; i < block; i += static_cast<int64_t>(hn::Lanes(d)))  // a block is whole vectors
    store_codes(encode<Signed>(d, book, hn::Mul(hn::Load(d, values + i), inverse)), codes + i);
  return zero ? 0.0f : largest;
}

/// The moments of a block while it is worked on.
struct Moments {
  HWY_ALIGN float first[ops::grain];
  HWY_ALIGN float second[ops::grain];
};

/// Elements [from, to) of the block that begins at `at`: new weights, and moments in fp32. Raises `most`, lane by lane.
HWY_INLINE void update_codes(const AdamWOperands& o, const AdamW& s, float decay, int64_t at, int64_t from, int64_t to,
                             Moments& moments, Pair& most) {
  const FloatTag d;
  const auto &book1 = dynamic_codebook(true), &book2 = dynamic_codebook(false);
  const float* gradient = o.gradient + from;
  float *weights = o.weights + from, *first = moments.first + (from - at), *second = moments.second + (from - at);
  const uint8_t *codes1 = static_cast<uint8_t*>(o.moment1) + from, *codes2 = static_cast<uint8_t*>(o.moment2) + from;
  const auto scale1 = hn::Set(d, o.scale1[at / o.block]), scale2 = hn::Set(d, o.scale2[at / o.block]);
  const AdamW a = s;
  auto most1 = most.first, most2 = most.second;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = to - from;
  const auto one = [&](int64_t i, auto span) HWY_ATTR __attribute__((always_inline)) {
    auto w = load(d, weights + i, span);
    auto m = hn::Mul(decode<true>(d, book1, load_codes(codes1 + i, span)), scale1);
    auto v = hn::Mul(decode<false>(d, book2, load_codes(codes2 + i, span)), scale2);
    update(d, a, decay, load(d, gradient + i, span), w, m, v);
    store(d, w, weights + i, span);
    store(d, m, first + i, span);
    store(d, v, second + i, span);
    most1 = hn::Max(most1, keep(d, hn::Abs(m), span));
    most2 = hn::Max(most2, keep(d, v, span));
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) one(i, Whole{});
  if (i < count) one(i, Part{static_cast<size_t>(count - i)});
  most = {most1, most2};
}

/// Whole blocks. The new moments of a block stay in fp32 until its largest are known.
HWY_INLINE void update_blocks(const AdamWOperands& o, const AdamW& s, int64_t begin, int64_t end) {
  const FloatTag d;
  Moments moments;
  for (int64_t at = begin; at < end; at += o.block) {
    Pair most = constant(0);
    int64_t done = at;  // elements between ranges are zero
    const auto clear_to = [&](int64_t to) {
      std::memset(moments.first + (done - at), 0, static_cast<size_t>(to - done) * sizeof(float));
      std::memset(moments.second + (done - at), 0, static_cast<size_t>(to - done) * sizeof(float));
    };
    each_range(o.ranges, s.decay, at, at + o.block, [&](int64_t from, int64_t to, float decay) HWY_ATTR {
      clear_to(from);
      update_codes(o, s, decay, at, from, to, moments, most);
      done = to;
    });
    if (done == at) continue;  // nothing but padding
    clear_to(at + o.block);
    uint8_t *codes1 = static_cast<uint8_t*>(o.moment1) + at, *codes2 = static_cast<uint8_t*>(o.moment2) + at;
    const float largest1 = hn::GetLane(hn::MaxOfLanes(d, most.first));
    const float largest2 = hn::GetLane(hn::MaxOfLanes(d, most.second));
    o.scale1[at / o.block] = encode_block<true>(dynamic_codebook(true), moments.first, largest1, codes1, o.block);
    o.scale2[at / o.block] = encode_block<false>(dynamic_codebook(false), moments.second, largest2, codes2, o.block);
  }
}

/// Elements [begin, end); `begin` is at a grain, `end` too or the last.
void adamw(const AdamWOperands& o, const AdamW& s, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at += ops::grain) {  // what a grain has just written is copied from cache
    const int64_t to = std::min(at + ops::grain, end);
    if (o.block > 0)
      update_blocks(o, s, at, to);
    else
      update_full(o, s, at, to);
    if (o.copy != nullptr)
      with_storage(o.copy_type,
                   [&](auto t) HWY_ATTR { round_to(o.weights + at, static_cast<decltype(t)*>(o.copy) + at, to - at); });
  }
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(adamw);

std::unique_ptr<Kernel> make_adamw(const ops::Op& op, Tensors tensors, int threads) {
  const auto& a = op.as<ops::AdamWAttributes>();
  const int64_t elements = input(op, tensors, 0).shape.elements(), block = a.block;
  const size_t states = block > 0 ? 5 : 3;
  check_operands(op, 3, 3, states, states + 1);
  const bool copied = op.out.size() > states;
  for (size_t i = 0; i < op.out.size(); ++i) {
    const ops::Tensor& tensor = output(op, tensors, i);
    const bool moment = i == 1 || i == 2, scale = block > 0 && (i == 3 || i == 4);
    STRATA_CHECK(tensor.shape.elements() == (scale ? elements / block : elements), "{} elements of {}",
                 tensor.shape.elements(), tensor.name);
    STRATA_CHECK(!moment || tensor.dtype == (block > 0 ? DType::u8 : DType::f32), "moments are {}",
                 name_of(tensor.dtype));
  }
  STRATA_CHECK(block == 0 || (block > 0 && block % 64 == 0 && ops::grain % block == 0 && elements % block == 0),
               "blocks of {} in {} elements", block, elements);
  std::vector<ops::DecayRange> ranges = a.ranges;
  std::sort(ranges.begin(), ranges.end(), [](const auto& x, const auto& y) { return x.begin < y.begin; });
  int64_t last = 0;
  for (const ops::DecayRange& range : ranges) {
    STRATA_CHECK(last <= range.begin && range.begin <= range.end && range.end <= elements, "elements {} to {} of {}",
                 range.begin, range.end, elements);
    last = range.end;
  }
  const DType copy_type = copied ? output(op, tensors, states).dtype : DType::f32;
  if (block > 0) (void)dynamic_codebook(true);  // made now, not in a step
  const auto function = HWY_DYNAMIC_DISPATCH(adamw);
  return make_kernel([=](Operands operands, const Launch&) {
    const auto& inputs = *pointer<const ops::StepInputs>(operands[1]);
    const auto& results = *pointer<const ops::StepResults>(operands[2]);
    if (results.skipped != 0) return;
    AdamWOperands o;
    o.gradient = pointer<const float>(operands[0]);
    o.weights = pointer<float>(operands[3]);
    o.moment1 = pointer<void>(operands[4]);
    o.moment2 = pointer<void>(operands[5]);
    if (block > 0) {
      o.scale1 = pointer<float>(operands[6]);
      o.scale2 = pointer<float>(operands[7]);
    }
    if (copied) o.copy = pointer<void>(operands[3 + states]);
    o.copy_type = copy_type;
    o.block = block;
    o.ranges = ranges;
    const double rate = inputs.learning_rate;
    AdamW s;
    s.gradient_scale = results.clip_factor * inputs.inverse_loss_scale;
    s.beta1 = static_cast<float>(a.beta1);
    s.beta2 = static_cast<float>(a.beta2);
    s.rest1 = static_cast<float>(1 - a.beta1);
    s.rest2 = static_cast<float>(1 - a.beta2);
    s.step = static_cast<float>(rate / static_cast<double>(inputs.bias1));
    s.inverse_root_bias2 = static_cast<float>(1 / std::sqrt(static_cast<double>(inputs.bias2)));
    s.epsilon = a.epsilon;
    s.decay = static_cast<float>(rate * static_cast<double>(a.weight_decay));
    // A grain is a whole number of blocks.
    parallel_for(threads, divide_up(elements, ops::grain), 2, [&](int64_t begin, int64_t end) {
      function(o, s, begin * ops::grain, std::min(end * ops::grain, elements));
    });
  });
}

}  // namespace strata::device::cpu
#endif
