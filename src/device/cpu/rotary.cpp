// Rotary embedding: turns the first dims of every query and key head by its position's angles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <cstring>

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// `heads` heads from x on; `table` is one position's cosines, then its sines. `sign` -1 turns back.
void rotate(const float* x, float* y, const float* table, int64_t heads, int64_t head_dim, int64_t half, float sign) {
  const FloatTag d;
  for (int64_t head = 0; head < heads; ++head) {
    const float* in = x + head * head_dim;
    float* out = y + head * head_dim;
    each_vector(d, half, [=](int64_t i, auto span) HWY_ATTR {
      const auto a = load(d, in + i, span), b = load(d, in + half + i, span), c = load(d, table + i, span);
      const auto s = hn::Mul(load(d, table + half + i, span), hn::Set(d, sign));
      store(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), out + i, span);
      store(d, hn::MulAdd(a, s, hn::Mul(b, c)), out + half + i, span);
    });
  }
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(rotate);

std::unique_ptr<Kernel> make_rotary(const ops::Op& op, Tensors tensors, int threads) {
  const auto& a = op.as<ops::RotaryAttributes>();
  check_operands(op, a.cached ? 3 : 2, a.cached ? 3 : 2, 1, 1);
  const Rows rows = rows_of(input(op, tensors, 0)), table_rows = rows_of(input(op, tensors, 1));
  STRATA_CHECK(rows_of(output(op, tensors, 0)) == rows);
  STRATA_CHECK(rows.width == (a.heads + 2 * a.kv_heads) * a.head_dim, "{} columns", rows.width);
  STRATA_CHECK(a.rotary_dims >= 0 && a.rotary_dims % 2 == 0 && a.rotary_dims <= a.head_dim);
  STRATA_CHECK(table_rows.width == a.rotary_dims);
  STRATA_CHECK(a.cached || (a.sequence >= 1 && table_rows.count >= a.sequence));
  const int64_t turned = a.heads + a.kv_heads, head_dim = a.head_dim, half = a.rotary_dims / 2, sequence = a.sequence;
  const bool cached = a.cached;
  const float sign = a.inverse ? -1.0f : 1.0f;
  const auto function = HWY_DYNAMIC_DISPATCH(rotate);
  return make_kernel([=](Operands operands, const Launch&) {
    const float *x = pointer<const float>(operands[0]), *table = pointer<const float>(operands[1]);
    float* y = pointer<float>(operands[cached ? 3 : 2]);
    const Positions positions =
        cached ? new_positions(*pointer<const ops::StepInputs>(operands[2]), rows.count, table_rows.count)
               : Positions{0, rows.count};
    parallel_for(threads, rows.count, divide_up(4096, rows.width), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* in = x + row * rows.width;
        float* out = y + row * rows.width;
        if (in != out) std::memcpy(out, in, static_cast<size_t>(rows.width) * sizeof(float));
        if (row >= positions.count) continue;
        const int64_t position = cached ? positions.first + row : row % sequence;
        function(out, out, table + position * 2 * half, turned, head_dim, half, sign);
      }
    });
  });
}

}  // namespace strata::device::cpu
#endif
