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
#include "device/cpu/native.h"
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

/// Codes are worked on in groups of so many vectors.
constexpr int group = 4;

template <class Span>
HWY_INLINE FloatVector decode(FloatTag d, const DynamicCodebook& book, const uint8_t* codes, Span span) {
  const hn::Rebind<uint8_t, FloatTag> narrow;
  return hn::GatherIndex(d, book.values.data(), hn::PromoteTo(IntTag(), load(narrow, codes, span)));
}

#if HWY_TARGET == HWY_AVX3
/// Transposes 4 x 4 blocks of 4 bytes: what packing four vectors leaves, and what taking them apart wants.
HWY_INLINE __m512i transposed(__m512i v) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

/// table[index] for indices below 128 (of which 7 bits count): has_byte_tables only, as Highway's target does not know the
/// instruction.
HWY_INLINE __m512i look_up(__m512i index, const uint8_t* table) {
  const __m512i* halves = reinterpret_cast<const __m512i*>(table);
  asm("vpermi2b %2, %1, %0" : "+v"(index) : "v"(halves[0]), "vm"(halves[1]));
  return index;
}
#endif

/// The values of codes, whole vectors.
HWY_INLINE void decode_group(FloatTag d, const DynamicCodebook& book, const uint8_t* codes,
                             FloatVector (&values)[group]) {
#if HWY_TARGET == HWY_AVX3
  if (has_byte_tables) {
    // Byte by byte of the values, then put together.
    const __m512i all = transposed(_mm512_loadu_si512(codes));
    const __mmask64 upper = _mm512_movepi8_mask(all);
    const auto plane = [&](size_t b) HWY_ATTR __attribute__((always_inline)) {
      const uint8_t* table = book.bytes[b].data();
      return _mm512_mask_mov_epi8(look_up(all, table), upper, look_up(all, table + 128));
    };
    const __m512i b0 = plane(0), b1 = plane(1), b2 = plane(2), b3 = plane(3);
    const __m512i low0 = _mm512_unpacklo_epi8(b0, b1), low1 = _mm512_unpackhi_epi8(b0, b1);
    const __m512i high0 = _mm512_unpacklo_epi8(b2, b3), high1 = _mm512_unpackhi_epi8(b2, b3);
    values[0] = FloatVector{_mm512_castsi512_ps(_mm512_unpacklo_epi16(low0, high0))};
    values[1] = FloatVector{_mm512_castsi512_ps(_mm512_unpackhi_epi16(low0, high0))};
    values[2] = FloatVector{_mm512_castsi512_ps(_mm512_unpacklo_epi16(low1, high1))};
    values[3] = FloatVector{_mm512_castsi512_ps(_mm512_unpackhi_epi16(low1, high1))};
    return;
  }
#endif
  for (int k = 0; k < group; ++k) values[k] = decode(d, book, codes + k * static_cast<int>(hn::Lanes(d)), Whole{});
}

#if HWY_TARGET == HWY_AVX3
/// The code whose value is nearest to x, |x| at most 1 (or a rounding above), less 127 if Signed; -128 where that should be
/// -127. Midway between two values it is either, within 1e-4 of their distance.
template <bool Signed>
HWY_INLINE __m512i encode(const DynamicCodebook& book, FloatVector x) {
  const FloatTag d;
  const auto least = hn::Set(d, 0x1p-23f);
  const auto size = Signed ? FloatVector{_mm512_range_ps(x.raw, least.raw, 0b1011)} : hn::Max(x, least);  // the larger
  const __m512i octaves = _mm512_srli_epi32(_mm512_castps_si512(size.raw), 24);  // bit 4 is always set
  const __m512 threshold = _mm512_permutexvar_ps(octaves, _mm512_load_ps(book.threshold.data()));
  const __mmask16 above = _mm512_cmp_ps_mask(size.raw, threshold, _CMP_GT_OQ);
  const __m512i line = _mm512_mask_sub_epi32(octaves, above, octaves, _mm512_set1_epi32(16));
  const auto at = [&](const DynamicCodebook::Lines& lines) HWY_ATTR __attribute__((always_inline)) {
    return FloatVector{_mm512_permutex2var_ps(_mm512_load_ps(lines.data()), line, _mm512_load_ps(lines.data() + 16))};
  };
  const auto rank = hn::Min(hn::MulAdd(size, at(book.slope), at(book.offset)), at(book.last));
  return _mm512_cvtps_epi32(Signed ? hn::CopySignToAbs(rank, x).raw : rank.raw);  // rounds to nearest
}
#else
/// The code whose value is nearest to x, |x| at most 1 (or a rounding above), the one nearer to zero of two.
template <bool Signed>
HWY_INLINE IntVector encode(const DynamicCodebook& book, FloatVector x) {
  const FloatTag d;
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

#if HWY_TARGET == HWY_AVX3
/// The codes of two vectors of values times `factor`, 16 bits each, in blocks of 4.
template <bool Signed>
HWY_INLINE __m512i encode_two(const DynamicCodebook& book, const float* values, FloatVector factor) {
  const FloatTag d;
  const __m512i codes = _mm512_packs_epi32(encode<Signed>(book, hn::Mul(hn::Load(d, values), factor)),
                                           encode<Signed>(book, hn::Mul(hn::Load(d, values + hn::Lanes(d)), factor)));
  return Signed ? _mm512_add_epi16(codes, _mm512_set1_epi16(127)) : codes;
}
#endif

/// The codes of values times `factor`, whole vectors.
template <bool Signed>
HWY_INLINE void encode_group(const DynamicCodebook& book, const float* values, FloatVector factor, uint8_t* codes) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#if HWY_TARGET == HWY_AVX3
  // There is a code for 1 and none for -1: the next one to it, 0, is nearest, and what saturation makes of -1.
  const __m512i first = encode_two<Signed>(book, values, factor);
  const __m512i second = encode_two<Signed>(book, values + 2 * lanes, factor);
  _mm512_storeu_si512(codes, transposed(_mm512_packus_epi16(first, second)));
#else
  const hn::Rebind<uint8_t, FloatTag> narrow;
  for (int64_t k = 0; k < group; ++k) {
    const auto code = encode<Signed>(book, hn::Mul(hn::Load(d, values + k * lanes), factor));
    hn::StoreU(hn::DemoteTo(narrow, code), narrow, codes + k * lanes);
  }
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
  for (int64_t i = 0; i < block; i += group * static_cast<int64_t>(hn::Lanes(d)))  // a block is whole groups
    encode_group<Signed>(book, values + i, inverse, codes + i);
  return zero ? 0.0f : largest;
}

/// The moments of a grain while it is worked on.
struct Moments {
  HWY_ALIGN float first[ops::grain];
  HWY_ALIGN float second[ops::grain];
};

/// One vector at `i` of the pointers, whose moments so far are m and v. Raises `most`, lane by lane.
template <class Span>
HWY_INLINE void update_vector(const AdamW& a, float decay, const float* gradient, float* weights, float* first,
                              float* second, int64_t i, FloatVector m, FloatVector v, Pair& most, Span span) {
  const FloatTag d;
  auto w = load(d, weights + i, span);
  update(d, a, decay, load(d, gradient + i, span), w, m, v);
  store(d, w, weights + i, span);
  store(d, m, first + i, span);
  store(d, v, second + i, span);
  most.first = hn::Max(most.first, keep(d, hn::Abs(m), span));
  most.second = hn::Max(most.second, keep(d, v, span));
}

/// Elements [from, to) of a block: new weights, and moments in fp32. Returns `most`, raised lane by lane.
HWY_INLINE Pair update_codes(const AdamWOperands& o, const AdamW& s, float decay, int64_t block, int64_t from,
                             int64_t to, float* first, float* second, Pair most) {
  const FloatTag d;
  const auto &book1 = dynamic_codebook(true), &book2 = dynamic_codebook(false);
  const float* gradient = o.gradient + from;
  float* weights = o.weights + from;
  const uint8_t *codes1 = static_cast<uint8_t*>(o.moment1) + from, *codes2 = static_cast<uint8_t*>(o.moment2) + from;
  // The moments are their values times the scales.
  AdamW a = s;
  a.beta1 *= o.scale1[block];
  a.beta2 *= o.scale2[block];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = to - from;
  int64_t i = 0;
  for (; i + group * lanes <= count; i += group * lanes) {
    FloatVector m[group], v[group];
    decode_group(d, book1, codes1 + i, m);
    decode_group(d, book2, codes2 + i, v);
#pragma GCC unroll 4
    for (int k = 0; k < group; ++k)
      update_vector(a, decay, gradient, weights, first, second, i + k * lanes, m[k], v[k], most, Whole{});
  }
  for (; i + lanes <= count; i += lanes)
    update_vector(a, decay, gradient, weights, first, second, i, decode(d, book1, codes1 + i, Whole{}),
                  decode(d, book2, codes2 + i, Whole{}), most, Whole{});
  if (i < count) {
    const Part part{static_cast<size_t>(count - i)};
    update_vector(a, decay, gradient, weights, first, second, i, decode(d, book1, codes1 + i, part),
                  decode(d, book2, codes2 + i, part), most, part);
  }
  return most;
}

/// Whole blocks of one grain. New moments stay in fp32 until all of their blocks' largest are known: block by block, each
/// would wait for the end of the one before. Coding needs nothing from memory, so the next grain is asked for meanwhile.
HWY_INLINE void update_blocks(const AdamWOperands& o, const AdamW& s, int64_t begin, int64_t end) {
  constexpr size_t most_blocks = ops::grain / 64;
  const FloatTag d;
  Moments moments;
  float largest1[most_blocks], largest2[most_blocks];  // below zero where there is nothing but padding
  for (int64_t at = begin; at < end; at += o.block) {
    float *first = moments.first + (at - begin), *second = moments.second + (at - begin);
    Pair most = constant(0);
    int64_t done = at;  // elements between ranges are zero
    const auto clear_to = [&](int64_t to) {
      std::memset(first + (done - at), 0, static_cast<size_t>(to - done) * sizeof(float));
      std::memset(second + (done - at), 0, static_cast<size_t>(to - done) * sizeof(float));
    };
    each_range(o.ranges, s.decay, at, at + o.block, [&](int64_t from, int64_t to, float decay) HWY_ATTR {
      clear_to(from);
      most = update_codes(o, s, decay, at / o.block, from, to, first + (from - at), second + (from - at), most);
      done = to;
    });
    const auto block = static_cast<size_t>((at - begin) / o.block);
    largest1[block] = largest2[block] = -1;
    if (done == at) continue;
    clear_to(at + o.block);
    largest1[block] = hn::GetLane(hn::MaxOfLanes(d, most.first));
    largest2[block] = hn::GetLane(hn::MaxOfLanes(d, most.second));
  }
  for (int64_t at = begin; at < end; at += o.block) {
    const auto block = static_cast<size_t>((at - begin) / o.block);
    if (largest1[block] < 0) continue;
    const float *first = moments.first + (at - begin), *second = moments.second + (at - begin);
    uint8_t *codes1 = static_cast<uint8_t*>(o.moment1) + at, *codes2 = static_cast<uint8_t*>(o.moment2) + at;
    prefetch(o.gradient + at + ops::grain, o.block);
    o.scale1[at / o.block] = encode_block<true>(dynamic_codebook(true), first, largest1[block], codes1, o.block);
    prefetch(o.weights + at + ops::grain, o.block);
    o.scale2[at / o.block] = encode_block<false>(dynamic_codebook(false), second, largest2[block], codes2, o.block);
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
