// Cross-entropy over the true vocabulary, and its backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// Elements that are summed in fp32 before they go into a sum in double; they stay in the innermost cache. Fewer where a
/// lane would else sum too many.
constexpr int64_t tile = HWY_TARGET == HWY_SCALAR ? 128 : 1024;

template <class T>
HWY_INLINE float largest_of(const T* x, int64_t count) {
  const FloatTag d;
  auto most = hn::Set(d, std::numeric_limits<float>::lowest());
  each_vector(d, count, [&](int64_t i, auto span) HWY_ATTR {
    most = hn::IfThenElse(first_lanes(d, span), hn::Max(most, load(d, x + i, span)), most);
  });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// Powers of two are taken of (x - origin) log2 e. Fused, x log2 e - (origin log2 e) rounds once, and the origin is kept in
// those units; without the instruction the difference has to come first, or the products' roundings would stay in it.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSE4
constexpr float origin_unit = 1;
HWY_INLINE Pair power_of(Pair x, Pair origin) { return Mul(Sub(x, origin), constant(log2_e)); }
#else
constexpr float origin_unit = log2_e;
HWY_INLINE Pair power_of(Pair x, Pair origin) { return MulSub(x, constant(log2_e), origin); }
#endif

struct TileSum {
  float sum = 0;      ///< of 2^power
  float largest = 0;  ///< power
};
template <class T>
HWY_INLINE TileSum sum_exp(const T* x, int64_t count, float origin) {
  constexpr int degree = exact<T> ? 6 : 4;
  const FloatTag d;
  const Pair taken_out = constant(origin);
  Pair sum = constant(0), most = constant(std::numeric_limits<float>::lowest());
  constexpr int64_t step = pair_size;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch(x + tile + i, step);
    const Pair power = power_of(load_pair(x + i, Whole{}), taken_out);
    most = Max(most, power);
    sum = Add(sum, exp2_of<degree>(power));
  }
  each_vector(d, count - i, [&](int64_t j, auto span) HWY_ATTR {
    const auto v = load(d, x + i + j, span);
    const Pair power = power_of({v, v}, taken_out);
    most.first = hn::IfThenElse(first_lanes(d, span), hn::Max(most.first, power.first), most.first);
    sum.first = hn::Add(sum.first, keep(d, exp2_of<degree>(power).first, span));
  });
  return {hn::GetLane(hn::SumOfLanes(d, hn::Add(sum.first, sum.second))),
          hn::GetLane(hn::MaxOfLanes(d, hn::Max(most.first, most.second)))};
}

/// log of the sum of e^x, in one pass over memory: where elements come that are far larger than those before, their tile is
/// taken again, and what was summed is scaled down. Elements of -infinity count as nothing; NaN if any is NaN
/// or infinity.
template <class T>
HWY_INLINE double log_sum_exp(const T* x, int64_t count) {
  // `origin` is about the largest so far, in its units; none while all has been -infinity.
  constexpr float far = 40, none = std::numeric_limits<float>::lowest();  // a tile's sum stays well inside fp32
  float origin = none;
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += tile) {
    const int64_t part = std::min(tile, count - begin);
    if (origin == none) {
      const float largest = largest_of(x + begin, part);
      if (largest > none) origin = origin_unit * largest;
    }
    TileSum now = sum_exp(x + begin, part, origin == none ? 0.0f : origin);
    if (now.largest > far) {
      const float before = origin;
      origin += now.largest * (origin_unit / log2_e);
      sum *= std::exp2((static_cast<double>(before) - static_cast<double>(origin)) *
                       static_cast<double>(log2_e / origin_unit));
      now = sum_exp(x + begin, part, origin);
    }
    sum += static_cast<double>(now.sum);
  }
  return (origin == none ? 0.0 : static_cast<double>(origin) / static_cast<double>(origin_unit)) + std::log(sum);
}

/// Rows [begin, end) of `width`, of which the first `vocab` columns count.
void cross_entropy(DType type, const void* logits, const int32_t* targets, float* lse, double* losses, int64_t vocab,
                   int64_t width, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    const FloatTag d;
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(logits) + row * width;
      const double value = log_sum_exp(x, vocab);
      lse[row] = static_cast<float>(value);
      const bool counts = targets[row] >= 0;
      losses[row] = counts ? value - static_cast<double>(hn::GetLane(load(d, x + targets[row], Part{1}))) : 0.0;
    }
  });
}

/// y = e^(x - lse) scale over `count` columns, less `scale` in column `target`.
template <class T>
HWY_INLINE void scaled_softmax(const T* x, T* y, int64_t count, float lse, float scale, int32_t target) {
  const FloatTag d;
  const float at_target = hn::GetLane(load(d, x + target, Part{1}));
  if constexpr (std::is_same_v<T, float>) {
    map(
        count, y, [=](Pair v) HWY_ATTR { return Mul(exp_of(Sub(v, constant(lse))), constant(scale)); }, x);
    y[target] -= scale;
  } else {
    const float shift = std::log2(scale) - lse * log2_e;
    map(
        count, y, [=](Pair v) HWY_ATTR { return exp2_of<3>(MulAdd(v, constant(log2_e), constant(shift))); }, x);
    const double gradient = std::expm1(static_cast<double>(at_target) - static_cast<double>(lse));
    store(d, hn::Set(d, static_cast<float>(gradient * static_cast<double>(scale))), y + target, Part{1});
  }
}

/// Rows [begin, end), as in cross_entropy.
void cross_entropy_backward(DType type, const void* logits, const float* lse, const int32_t* targets, float scale,
                            void* dlogits, int64_t vocab, int64_t width, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    for (int64_t row = begin; row < end; ++row) {
      T* out = static_cast<T*>(dlogits) + row * width;
      const int64_t real = targets[row] < 0 ? 0 : vocab;
      if (real > 0)
        scaled_softmax(static_cast<const T*>(logits) + row * width, out, real, lse[row], scale, targets[row]);
      std::memset(out + real, 0, static_cast<size_t>(width - real) * sizeof(T));
    }
  });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(cross_entropy);
HWY_EXPORT(cross_entropy_backward);

namespace {

void check_targets(const int32_t* targets, int64_t count, int64_t vocab) {
  for (int64_t t = 0; t < count; ++t)
    if (targets[t] >= vocab)
      throw run_error(
          "target {} of the micro-batch is {}, past the vocabulary of {}: is the dataset of this tokenizer?", t,
          targets[t], vocab);
}

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 2, 2, 2);
  const Rows rows = rows_of(input(op, tensors, 0));
  const int64_t vocab = op.as<ops::CrossEntropyAttributes>().vocab;
  STRATA_CHECK(vocab >= 1 && vocab <= rows.width, "vocabulary {} in {} columns", vocab, rows.width);
  STRATA_CHECK(input(op, tensors, 1).dtype == DType::i32 && input(op, tensors, 1).shape.elements() == rows.count);
  STRATA_CHECK(output(op, tensors, 0).dtype == DType::f64 && output(op, tensors, 0).shape.elements() == 1);
  STRATA_CHECK(output(op, tensors, 1).shape.elements() == rows.count && op.workspace >= 0);
  const DType type = input(op, tensors, 0).dtype;
  const auto function = HWY_DYNAMIC_DISPATCH(cross_entropy);
  return make_kernel([=](Operands operands, const Launch&) {
    const void* logits = pointer<const void>(operands[0]);
    const int32_t* targets = pointer<const int32_t>(operands[1]);
    double* loss = pointer<double>(operands[2]);
    float* lse = pointer<float>(operands[3]);
    double* losses = pointer<double>(operands[4]);
    check_targets(targets, rows.count, vocab);
    for_rows(threads, rows, [=](int64_t begin, int64_t end) {
      function(type, logits, targets, lse, losses, vocab, rows.width, begin, end);
    });
    double sum = 0;
    for (int64_t row = 0; row < rows.count; ++row) sum += losses[row];
    *loss = sum;
  });
}

std::unique_ptr<Kernel> make_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 4, 4, 1, 1);
  const Rows rows = rows_of(input(op, tensors, 0));
  const int64_t vocab = op.as<ops::CrossEntropyAttributes>().vocab;
  STRATA_CHECK(vocab >= 1 && vocab <= rows.width, "vocabulary {} in {} columns", vocab, rows.width);
  STRATA_CHECK(input(op, tensors, 1).shape.elements() == rows.count);
  STRATA_CHECK(input(op, tensors, 2).dtype == DType::i32 && input(op, tensors, 2).shape.elements() == rows.count);
  STRATA_CHECK(rows_of(output(op, tensors, 0)) == rows);
  const DType type = input(op, tensors, 0).dtype;
  const auto function = HWY_DYNAMIC_DISPATCH(cross_entropy_backward);
  return make_kernel([=](Operands operands, const Launch&) {
    const void* logits = pointer<const void>(operands[0]);
    const float* lse = pointer<const float>(operands[1]);
    const int32_t* targets = pointer<const int32_t>(operands[2]);
    const float scale = pointer<const ops::StepInputs>(operands[3])->grad_scale;
    void* dlogits = pointer<void>(operands[4]);
    check_targets(targets, rows.count, vocab);
    for_rows(threads, rows, [=](int64_t begin, int64_t end) {
      function(type, logits, lse, targets, scale, dlogits, vocab, rows.width, begin, end);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cross_entropy(const ops::Op& op, Tensors tensors, int threads) {
  return op.kind == ops::Kind::cross_entropy ? make_forward(op, tensors, threads) : make_backward(op, tensors, threads);
}

}  // namespace strata::device::cpu
#endif
