// AdamW in one pass over memory.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "device/cpu/adamw.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// Elements [begin, end):  w -= decay w;  m = beta1 m + rest1 g;  v = beta2 v + rest2 g^2;
/// w -= step m / (sqrt(v / bias2) + epsilon), as torch.optim.AdamW.
void adamw(const float* gradient, float* weights, float* moment1, float* moment2, const AdamW& s, float decay,
           int64_t begin, int64_t end) {
  const FloatTag d;
  const AdamW a = s;
  each_vector(d, end - begin, [=](int64_t j, auto span) HWY_ATTR {
    const int64_t i = begin + j;
    const auto g = hn::Mul(load(d, gradient + i, span), hn::Set(d, a.gradient_scale));
    const auto m = hn::MulAdd(load(d, moment1 + i, span), hn::Set(d, a.beta1), hn::Mul(g, hn::Set(d, a.rest1)));
    const auto v =
        hn::MulAdd(load(d, moment2 + i, span), hn::Set(d, a.beta2), hn::Mul(hn::Mul(g, g), hn::Set(d, a.rest2)));
    auto w = load(d, weights + i, span);
    w = hn::NegMulAdd(w, hn::Set(d, decay), w);
    const auto denominator = hn::MulAdd(hn::Sqrt(v), hn::Set(d, a.inverse_root_bias2), hn::Set(d, a.epsilon));
    w = hn::NegMulAdd(hn::Set(d, a.step), hn::Div(m, denominator), w);
    store(d, w, weights + i, span);
    store(d, m, moment1 + i, span);
    store(d, v, moment2 + i, span);
  });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(adamw);

std::unique_ptr<Kernel> make_adamw(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 3, 3, 3, 3);
  const auto& a = op.as<ops::AdamWAttributes>();
  const int64_t elements = input(op, tensors, 0).shape.elements();
  for (size_t i = 0; i < 3; ++i) STRATA_CHECK(output(op, tensors, i).shape.elements() == elements);
  for (const ops::DecayRange& range : a.ranges)
    STRATA_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= elements, "elements {} to {} of {}",
                 range.begin, range.end, elements);
  const auto function = HWY_DYNAMIC_DISPATCH(adamw);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* gradient = pointer<const float>(operands[0]);
    const auto& inputs = *pointer<const ops::StepInputs>(operands[1]);
    const auto& results = *pointer<const ops::StepResults>(operands[2]);
    float *weights = pointer<float>(operands[3]), *moment1 = pointer<float>(operands[4]);
    float* moment2 = pointer<float>(operands[5]);
    if (results.skipped != 0) return;
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
    parallel_for(threads, elements, 4096, [&](int64_t begin, int64_t end) {
      for (const ops::DecayRange& range : a.ranges) {
        const int64_t from = std::max(begin, range.begin), to = std::min(end, range.end);
        if (from < to) function(gradient, weights, moment1, moment2, s, range.decay ? s.decay : 0.0f, from, to);
      }
    });
  });
}

}  // namespace strata::device::cpu
#endif
