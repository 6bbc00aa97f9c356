// add, dropout, fill_zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/random.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/parallel.h"
#include "device/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// y = a + b (+ c, if not null), elements [begin, end).
void add(DType type, const void* a, const void* b, const void* c, void* y, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    const T *first = static_cast<const T*>(a) + begin, *second = static_cast<const T*>(b) + begin;
    T* to = static_cast<T*>(y) + begin;
    if (c == nullptr)
      map(
          end - begin, to, [](Pair u, Pair v) HWY_ATTR { return Add(u, v); }, first, second);
    else
      map(
          end - begin, to, [](Pair u, Pair v, Pair w) HWY_ATTR { return Add(Add(u, v), w); }, first, second,
          static_cast<const T*>(c) + begin);
  });
}

struct WordPair {
  Words first, second;
};

/// A row's words, as many as a pair of T has elements and in the order of load_pair, from number `first` on, which is a
/// multiple of that.
template <class T>
HWY_INLINE WordPair random_words(const Dropout& a, uint32_t first, uint32_t position, uint64_t sequence_id) {
  const WordTag d;
#if HWY_TARGET == HWY_SCALAR
  const Random4 random = philox<Dropout::rounds>(a.key, uint64_t{position} << 32 | first / 4, sequence_id);
  return {hn::Set(d, random[first % 4]), hn::Set(d, random[first % 4 + 1])};
#else
  const CounterTag wide;
  constexpr bool split = std::is_same_v<T, Bfloat16>;  // into even and odd elements
  const auto places = split ? hn::Iota(wide, 0) : interleaved_places();
  const PhiloxWords c =
      philox_of(a.keys, {hn::Add(places, hn::Set(wide, uint64_t{first / 4})), hn::Set(wide, uint64_t{position}),
                         hn::Set(wide, sequence_id), hn::Set(wide, sequence_id >> 32)});
  if constexpr (split) {
    return {join_words(c.c0, c.c2), join_words(c.c1, c.c3)};
  } else {
    const auto w01 = hn::BitCast(wide, join_words(c.c0, c.c1)), w23 = hn::BitCast(wide, join_words(c.c2, c.c3));
    return {hn::BitCast(d, hn::InterleaveLower(wide, w01, w23)), hn::BitCast(d, hn::InterleaveUpper(wide, w01, w23))};
  }
#endif
}

/// v scale where the upper half of `word` is at least the threshold, else 0.
HWY_INLINE FloatVector keep_or_drop(const Dropout& a, FloatVector v, Words word) {
  const FloatTag d;
  // With operations that every instruction set has.
  const auto threshold = hn::Set(WordTag(), a.threshold);
  const auto kept = hn::Eq(hn::Max(word, threshold), word);
  return hn::IfThenElseZero(hn::RebindMask(d, kept), hn::Mul(v, hn::Set(d, a.scale)));
}

template <class T>
HWY_INLINE void dropout_row(const Dropout& a, uint32_t position, uint64_t sequence_id, const T* x, T* y,
                            int64_t width) {
  constexpr int64_t half = Dropout::block / 2;
  static_assert(half % pair_size == 0);
  constexpr int64_t ahead = 2048 / static_cast<int64_t>(sizeof(T));  // the words leave no room to look ahead
  const auto apply = [=](int64_t i, WordPair words, auto span) HWY_ATTR {
    prefetch(x + i + ahead, pair_size);
    const Pair v = load_pair(x + i, span);
    store_pair({keep_or_drop(a, v.first, words.first), keep_or_drop(a, v.second, words.second)}, y + i, span);
  };
  const auto words_at = [=](int64_t i, int64_t at) HWY_ATTR {
    return random_words<T>(a, static_cast<uint32_t>(i / 2 + at), position, sequence_id);
  };
  const auto upward = [](WordPair words) HWY_ATTR {
    return WordPair{hn::ShiftLeft<16>(words.first), hn::ShiftLeft<16>(words.second)};
  };
  int64_t i = 0;
  for (; i + Dropout::block <= width; i += Dropout::block)
#pragma GCC unroll 4
    for (int64_t at = 0; at < half; at += pair_size) {
      const WordPair words = words_at(i, at);
      apply(i + at, upward(words), Whole{});
      apply(i + at + half, words, Whole{});
    }
  for (int64_t at = 0; i + at < width && at < half; at += pair_size) {
    const WordPair words = words_at(i, at);
    const auto rest = [=](int64_t from, WordPair these) HWY_ATTR {
      if (from + pair_size <= width)
        apply(from, these, Whole{});
      else if (from < width)
        apply(from, these, Part{static_cast<size_t>(width - from)});
    };
    rest(i + at, upward(words));
    rest(i + at + half, words);
  }
}

/// Rows [begin, end), each one position of a sequence.
void dropout(DType type, const Dropout& dropout, const int64_t* sequence_ids, int64_t sequence, const void* x, void* y,
             int64_t width, int64_t begin, int64_t end) {
  const Dropout a = dropout;
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    for (int64_t row = begin; row < end; ++row)
      dropout_row(a, static_cast<uint32_t>(row % sequence), static_cast<uint64_t>(sequence_ids[row / sequence]),
                  static_cast<const T*>(x) + row * width, static_cast<T*>(y) + row * width, width);
  });
}

/// Zeros, by plain stores: the C library's memset is slower where memory is not in a cache. More than a cache holds goes
/// past it.
void fill_zero(uint8_t* to, int64_t begin, int64_t end) {
  constexpr int64_t large = int64_t{4} << 20;
  const hn::ScalableTag<uint8_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  if (end - begin >= large && reinterpret_cast<uintptr_t>(to + begin) % 64 == 0) {
    for (; i + lanes <= end; i += lanes) hn::Stream(hn::Zero(d), d, to + i);
    hwy::FlushStream();
  }
  each_vector(d, end - i, [=](int64_t j, auto span) HWY_ATTR { store(d, hn::Zero(d), to + i + j, span); });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(add);
HWY_EXPORT(dropout);
HWY_EXPORT(fill_zero);

namespace {

std::unique_ptr<Kernel> make_add(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 3, 1, 1);
  const ops::Tensor& y = output(op, tensors, 0);
  const int64_t count = y.shape.elements();
  for (size_t i = 0; i < op.in.size(); ++i) STRATA_CHECK(input(op, tensors, i).shape.elements() == count);
  const DType type = y.dtype;
  const bool three = op.in.size() == 3;
  const auto function = HWY_DYNAMIC_DISPATCH(add);
  return make_kernel([=](Operands operands, const Launch&) {
    const void *a = pointer<const void>(operands[0]), *b = pointer<const void>(operands[1]);
    const void* c = three ? pointer<const void>(operands[2]) : nullptr;
    void* sum = pointer<void>(operands[three ? 3 : 2]);
    for_elements(threads, count, [=](int64_t begin, int64_t end) { function(type, a, b, c, sum, begin, end); });
  });
}

/// The mask of an element is a pure function of seed, step, unit, site (they make the key), sequence, position in it
/// and channel (they make the counter and choose 16 of its bits). Backward runs the same operation on dy.
std::unique_ptr<Kernel> make_dropout(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 3, 3, 1, 1);
  const auto& a = op.as<ops::DropoutAttributes>();
  const Rows rows = rows_of(input(op, tensors, 0));
  STRATA_CHECK(rows_of(output(op, tensors, 0)) == rows && input(op, tensors, 1).dtype == DType::i64);
  STRATA_CHECK(a.sequence >= 1 && input(op, tensors, 1).shape.elements() * a.sequence == rows.count);
  STRATA_CHECK(a.probability >= 0 && a.probability < 1, "dropout of {}", a.probability);
  // The scale is of the probability that 16 bits give, so that the mean stays what it was.
  const double threshold = std::min(std::round(static_cast<double>(a.probability) * 0x1p16), 0x1p16 - 1);
  const auto scale = static_cast<float>(0x1p16 / (0x1p16 - threshold));
  const DType type = input(op, tensors, 0).dtype;
  const int64_t sequence = a.sequence;
  const uint64_t site = a.site;
  const auto function = HWY_DYNAMIC_DISPATCH(dropout);
  return make_kernel([=](Operands operands, const Launch& launch) {
    const void* x = pointer<const void>(operands[0]);
    const int64_t* sequence_ids = pointer<const int64_t>(operands[1]);
    const auto& inputs = *pointer<const ops::StepInputs>(operands[2]);
    void* y = pointer<void>(operands[3]);
    const Random4 mixed = philox(inputs.seed, inputs.step, uint64_t{static_cast<uint32_t>(launch.unit)} << 32 | site);
    const Dropout shared(uint64_t{mixed[1]} << 32 | mixed[0], static_cast<uint32_t>(threshold), scale);
    for_rows(threads, rows, [=](int64_t begin, int64_t end) {
      function(type, shared, sequence_ids, sequence, x, y, rows.width, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_fill_zero(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 0, 0, 1, 1);
  const int64_t bytes = output(op, tensors, 0).bytes();
  const auto function = HWY_DYNAMIC_DISPATCH(fill_zero);
  return make_kernel([=](Operands operands, const Launch&) {
    uint8_t* y = pointer<uint8_t>(operands[0]);
    for_elements(threads, bytes, [=](int64_t begin, int64_t end) { function(y, begin, end); });
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
