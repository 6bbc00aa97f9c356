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

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// log of the sum of e^x, the largest taken out first. NaN if any is NaN.
double log_sum_exp(const float* x, int64_t count) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Set(d, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, hn::LoadU(d, x + i));
  float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) largest = std::max(largest, x[i]);
  // Exponentials are summed in fp32 over short stretches, those in double.
  constexpr int64_t stretch = 2048;
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += stretch)
    sum += static_cast<double>(sum_vectors(d, std::min(stretch, count - begin), [=](int64_t j, auto span) HWY_ATTR {
      return exp_of(d, hn::Sub(load(d, x + begin + j, span), hn::Set(d, largest)));
    }));
  return static_cast<double>(largest) + std::log(sum);
}

/// y = e^(x - lse) scale.
void scaled_softmax(const float* x, float* y, int64_t count, float lse, float scale) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    const auto p = exp_of(d, hn::Sub(load(d, x + i, span), hn::Set(d, lse)));
    store(d, hn::Mul(p, hn::Set(d, scale)), y + i, span);
  });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(log_sum_exp);
HWY_EXPORT(scaled_softmax);

namespace {

constexpr int64_t least = 4096;  // elements a thread must have for another one to pay

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
  const auto function = HWY_DYNAMIC_DISPATCH(log_sum_exp);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* logits = pointer<const float>(operands[0]);
    const int32_t* targets = pointer<const int32_t>(operands[1]);
    double* loss = pointer<double>(operands[2]);
    float* lse = pointer<float>(operands[3]);
    double* losses = pointer<double>(operands[4]);
    check_targets(targets, rows.count, vocab);
    parallel_for(threads, rows.count, divide_up(least, vocab), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* x = logits + row * rows.width;
        const double value = function(x, vocab);
        lse[row] = static_cast<float>(value);
        losses[row] = targets[row] < 0 ? 0.0 : value - static_cast<double>(x[targets[row]]);
      }
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
  const auto function = HWY_DYNAMIC_DISPATCH(scaled_softmax);
  return make_kernel([=](Operands operands, const Launch&) {
    const float *logits = pointer<const float>(operands[0]), *lse = pointer<const float>(operands[1]);
    const int32_t* targets = pointer<const int32_t>(operands[2]);
    const float scale = pointer<const ops::StepInputs>(operands[3])->grad_scale;
    float* dlogits = pointer<float>(operands[4]);
    check_targets(targets, rows.count, vocab);
    parallel_for(threads, rows.count, divide_up(least, rows.width), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* out = dlogits + row * rows.width;
        const int64_t real = targets[row] < 0 ? 0 : vocab;
        if (real > 0) {
          function(logits + row * rows.width, out, real, lse[row], scale);
          out[targets[row]] -= scale;
        }
        std::memset(out + real, 0, static_cast<size_t>(rows.width - real) * sizeof(float));
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cross_entropy(const ops::Op& op, Tensors tensors, int threads) {
  return op.kind == ops::Kind::cross_entropy ? make_forward(op, tensors, threads) : make_backward(op, tensors, threads);
}

}  // namespace strata::device::cpu
#endif
