// add, dropout, fill_zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/random.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

void add2(const float* a, const float* b, float* y, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    store(d, hn::Add(load(d, a + i, span), load(d, b + i, span)), y + i, span);
  });
}

void add3(const float* a, const float* b, const float* c, float* y, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    store(d, hn::Add(hn::Add(load(d, a + i, span), load(d, b + i, span)), load(d, c + i, span)), y + i, span);
  });
}

using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;

#if HWY_TARGET != HWY_SCALAR
/// High and low halves of the 64-bit products of 32-bit lanes with a number.
HWY_INLINE void multiply_wide(WordTag d, Words a, uint32_t number, Words& high, Words& low) {
  const hn::RepartitionToWide<WordTag> wide;
  const auto b = hn::Set(d, number);
  const auto even = hn::MulEven(a, b), odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

/// core/random.h's philox, one counter a lane: counter (c0, position, sequence id), c0 = `first` + lane.
HWY_INLINE void philox_lanes(WordTag d, uint64_t key, uint32_t first, uint32_t position, uint64_t sequence_id,
                             uint32_t* HWY_RESTRICT words) {
  auto c0 = hn::Iota(d, first), c1 = hn::Set(d, position);
  auto c2 = hn::Set(d, static_cast<uint32_t>(sequence_id)), c3 = hn::Set(d, static_cast<uint32_t>(sequence_id >> 32));
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    multiply_wide(d, c0, 0xD2511F53u, high0, low0);
    multiply_wide(d, c2, 0xCD9E8D57u, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, words);
}

#else
/// One lane: the plain function.
HWY_INLINE void philox_lanes(WordTag, uint64_t key, uint32_t first, uint32_t position, uint64_t sequence_id,
                             uint32_t* words) {
  const Random4 random = philox(key, uint64_t{position} << 32 | first, sequence_id);
  std::copy(random.begin(), random.end(), words);
}
#endif

/// One row: y = x scale where the channel's random word is at least `threshold`, else 0.
void dropout_row(const float* x, float* y, int64_t width, uint64_t key, uint32_t position, uint64_t sequence_id,
                 uint32_t threshold, float scale) {
  const FloatTag d;
  const WordTag words_tag;
  constexpr size_t most_lanes = HWY_MAX_BYTES / sizeof(float);
  HWY_ALIGN uint32_t words[4 * most_lanes];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t block = 0; block < width; block += 4 * lanes) {
    philox_lanes(words_tag, key, static_cast<uint32_t>(block / 4), position, sequence_id, words);
    const uint32_t* from = words;
    each_vector(d, std::min(4 * lanes, width - block), [=](int64_t i, auto span) HWY_ATTR {
      const auto word = hn::Load(words_tag, from + i);
      // An unsigned word below the threshold, with operations that every instruction set has.
      const auto kept = hn::Eq(hn::Max(word, hn::Set(words_tag, threshold)), word);
      const auto v = hn::Mul(load(d, x + block + i, span), hn::Set(d, scale));
      store(d, hn::IfThenElseZero(hn::RebindMask(d, kept), v), y + block + i, span);
    });
  }
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(add2);
HWY_EXPORT(add3);
HWY_EXPORT(dropout_row);

namespace {

constexpr int64_t least = 4096;  // elements a thread must have for another one to pay

std::unique_ptr<Kernel> make_add(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 3, 1, 1);
  const int64_t count = output(op, tensors, 0).shape.elements();
  for (size_t i = 0; i < op.in.size(); ++i) STRATA_CHECK(input(op, tensors, i).shape.elements() == count);
  const bool three = op.in.size() == 3;
  const auto two_terms = HWY_DYNAMIC_DISPATCH(add2);
  const auto three_terms = HWY_DYNAMIC_DISPATCH(add3);
  return make_kernel([=](Operands operands, const Launch&) {
    const float *a = pointer<const float>(operands[0]), *b = pointer<const float>(operands[1]);
    const float* c = three ? pointer<const float>(operands[2]) : nullptr;
    float* y = pointer<float>(operands[three ? 3 : 2]);
    parallel_for(threads, count, least, [=](int64_t begin, int64_t end) {
      if (three)
        three_terms(a + begin, b + begin, c + begin, y + begin, end - begin);
      else
        two_terms(a + begin, b + begin, y + begin, end - begin);
    });
  });
}

/// The mask of an element is a pure function of seed, step, unit, site (they make the key), sequence, position in it
/// and channel (they make the counter; four channels share one). Backward runs the same operation on dy.
std::unique_ptr<Kernel> make_dropout(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 3, 3, 1, 1);
  const auto& a = op.as<ops::DropoutAttributes>();
  const Rows rows = rows_of(input(op, tensors, 0));
  STRATA_CHECK(rows_of(output(op, tensors, 0)) == rows && input(op, tensors, 1).dtype == DType::i64);
  STRATA_CHECK(a.sequence >= 1 && input(op, tensors, 1).shape.elements() * a.sequence == rows.count);
  STRATA_CHECK(a.probability >= 0 && a.probability < 1, "dropout of {}", a.probability);
  const double probability = a.probability;
  const auto threshold = static_cast<uint32_t>(std::min(std::round(probability * 0x1p32), 0x1p32 - 1));
  const auto scale = static_cast<float>(1 / (1 - probability));
  const int64_t sequence = a.sequence;
  const uint64_t site = a.site;
  const auto function = HWY_DYNAMIC_DISPATCH(dropout_row);
  return make_kernel([=](Operands operands, const Launch& launch) {
    const float* x = pointer<const float>(operands[0]);
    const int64_t* sequence_ids = pointer<const int64_t>(operands[1]);
    const auto& inputs = *pointer<const ops::StepInputs>(operands[2]);
    float* y = pointer<float>(operands[3]);
    const Random4 mixed = philox(inputs.seed, inputs.step, uint64_t{static_cast<uint32_t>(launch.unit)} << 32 | site);
    const uint64_t key = uint64_t{mixed[1]} << 32 | mixed[0];
    parallel_for(threads, rows.count, divide_up(least / 4, rows.width), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        function(x + row * rows.width, y + row * rows.width, rows.width, key, static_cast<uint32_t>(row % sequence),
                 static_cast<uint64_t>(sequence_ids[row / sequence]), threshold, scale);
    });
  });
}

std::unique_ptr<Kernel> make_fill_zero(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 0, 0, 1, 1);
  const int64_t bytes = output(op, tensors, 0).bytes();
  return make_kernel([=](Operands operands, const Launch&) {
    char* y = pointer<char>(operands[0]);
    parallel_for(threads, bytes, 4 * least,
                 [=](int64_t begin, int64_t end) { std::memset(y + begin, 0, static_cast<size_t>(end - begin)); });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_elementwise(const ops::Op& op, Tensors tensors, int threads) {
  switch (op.kind) {
    case ops::Kind::add: return make_add(op, tensors, threads);
    case ops::Kind::dropout: return make_dropout(op, tensors, threads);
    default: return make_fill_zero(op, tensors, threads);
  }
}

}  // namespace strata::device::cpu
#endif
