// The gradient norm as a wide integer sum, and clipping.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/grad_norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Sum of squares of one grain in double. Lane j of 32 sums elements j, 32 + j, ...; lanes are then folded in halves.
/// Squares of floats are exact in double, so every instruction set gives the same bits.
double grain_sum_of_squares(const float* x) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr int64_t fixed = 32;
  HWY_ALIGN double sums[fixed];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < fixed; first += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (int64_t i = first; i < ops::grain; i += fixed) {
      const auto v0 = hn::PromoteTo(d, hn::LoadU(narrow, x + i));
      const auto v1 = hn::PromoteTo(d, hn::LoadU(narrow, x + i + lanes));
      const auto v2 = hn::PromoteTo(d, hn::LoadU(narrow, x + i + 2 * lanes));
      const auto v3 = hn::PromoteTo(d, hn::LoadU(narrow, x + i + 3 * lanes));
      s0 = hn::MulAdd(v0, v0, s0);
      s1 = hn::MulAdd(v1, v1, s1);
      s2 = hn::MulAdd(v2, v2, s2);
      s3 = hn::MulAdd(v3, v3, s3);
    }
    hn::StoreU(s0, d, sums + first);
    hn::StoreU(s1, d, sums + first + lanes);
    hn::StoreU(s2, d, sums + first + 2 * lanes);
    hn::StoreU(s3, d, sums + first + 3 * lanes);
  }
  for (int64_t half = fixed / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(grain_sum_of_squares);

namespace {

using Limbs = std::array<int64_t, ops::norm_limbs>;
constexpr uint64_t low_half = 0xFFFFFFFF;

/// The top limb counts grains that held something not finite, so that the mark survives any sum over grains and ranks.
/// A grain of finite floats is below 2^267 and never reaches it.
constexpr size_t mark = ops::norm_limbs - 1;

/// Adds a grain's sum, as an exact fixed-point number, without carrying between limbs.
void add_to(Limbs& limbs, double sum) {
  if (!std::isfinite(sum)) {
    ++limbs[mark];
    return;
  }
  int exponent = 0;
  uint64_t mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(sum, &exponent), 53));
  int bit = exponent - 53 + ops::norm_fraction_bits;
  if (bit < 0) {
    mantissa = bit > -64 ? mantissa >> -bit : 0;
    bit = 0;
  }
  const size_t limb = static_cast<size_t>(bit) / 32;
  const int shift = bit % 32;
  const uint64_t low = (mantissa & low_half) << shift, high = ((mantissa >> 32) << shift) + (low >> 32);
  limbs[limb] += static_cast<int64_t>(low & low_half);
  limbs[limb + 1] += static_cast<int64_t>(high & low_half);
  limbs[limb + 2] += static_cast<int64_t>(high >> 32);
}

/// Carried, as a double: correct to an ulp or two and the same for every way the same total came together.
double value_of(const Limbs& limbs) {
  double value = 0;
  int64_t carry = 0;
  for (size_t i = 0; i < limbs.size(); ++i) {
    const int64_t total = limbs[i] + carry;
    carry = total >> 32;
    value += std::ldexp(static_cast<double>(static_cast<uint64_t>(total) & low_half),
                        32 * static_cast<int>(i) - ops::norm_fraction_bits);
  }
  return value;
}

std::unique_ptr<Kernel> make_sum(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 1, 1, 1, 1);
  const ops::Tensor& sum = output(op, tensors, 0);
  const int64_t elements = input(op, tensors, 0).shape.elements();
  STRATA_CHECK(elements % ops::grain == 0, "{} elements are not whole grains", elements);
  STRATA_CHECK(sum.dtype == DType::i64 && sum.shape.elements() == ops::norm_limbs);
  const auto function = HWY_DYNAMIC_DISPATCH(grain_sum_of_squares);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* g = pointer<const float>(operands[0]);
    int64_t* total = pointer<int64_t>(operands[1]);
    parallel_for(threads, elements / ops::grain, 4, [=](int64_t begin, int64_t end) {
      Limbs own{};
      for (int64_t grain = begin; grain < end; ++grain) add_to(own, function(g + grain * ops::grain));
      for (size_t i = 0; i < own.size(); ++i)
        std::atomic_ref<int64_t>(total[i]).fetch_add(own[i], std::memory_order_relaxed);
    });
  });
}

std::unique_ptr<Kernel> make_clip(const ops::Op& op, Tensors tensors) {
  check_operands(op, 2, 2, 1, 1);
  STRATA_CHECK(input(op, tensors, 0).dtype == DType::i64 && input(op, tensors, 0).shape.elements() == ops::norm_limbs);
  const double max_norm = op.as<ops::ClipAttributes>().max_norm;
  return make_kernel([=](Operands operands, const Launch&) {
    Limbs limbs;
    std::copy_n(pointer<const int64_t>(operands[0]), limbs.size(), limbs.begin());
    const auto& inputs = *pointer<const ops::StepInputs>(operands[1]);
    ops::StepResults results;
    if (limbs[mark] != 0) {
      results = {std::numeric_limits<double>::infinity(), 0.0f, 1};
    } else {
      results.grad_norm = std::sqrt(value_of(limbs)) * static_cast<double>(inputs.inverse_loss_scale);
      // As torch.nn.utils.clip_grad_norm_ does.
      if (max_norm > 0) results.clip_factor = static_cast<float>(std::min(1.0, max_norm / (results.grad_norm + 1e-6)));
    }
    *pointer<ops::StepResults>(operands[2]) = results;
  });
}

}  // namespace

std::unique_ptr<Kernel> make_grad_norm(const ops::Op& op, Tensors tensors, int threads) {
  return op.kind == ops::Kind::grad_norm ? make_sum(op, tensors, threads) : make_clip(op, tensors);
}

}  // namespace strata::device::cpu
#endif
