// Rotary embedding: turns the first dims of every query and key head by its position's angles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <cstring>

#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/parallel.h"
#include "device/cpu/rotary.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE void rotate_row(const Rotation& a, const float* table, const T* x, T* y) {
  const FloatTag d;
  const int64_t half = a.half;
  int64_t i = 0;
  // Heads inside, so that angles are loaded once.
  for (; i + pair_size <= half; i += pair_size) {
    const Pair c = load_halves(table + i), s = Mul(load_halves(table + half + i), constant(a.sign));
    for (int64_t head = 0; head < a.heads; ++head) {
      const T* in = x + head * a.head_dim + i;
      T* out = y + head * a.head_dim + i;
      const Pair u = load_halves(in), v = load_halves(in + half);
      store_halves(NegMulAdd(v, s, Mul(u, c)), out);
      store_halves(MulAdd(u, s, Mul(v, c)), out + half);
    }
  }
  each_vector(d, half - i, [=](int64_t j, auto span) HWY_ATTR {
    const auto c = load(d, table + i + j, span);
    const auto s = hn::Mul(load(d, table + half + i + j, span), hn::Set(d, a.sign));
    for (int64_t head = 0; head < a.heads; ++head) {
      const T* in = x + head * a.head_dim + i + j;
      T* out = y + head * a.head_dim + i + j;
      const auto u = load(d, in, span), v = load(d, in + half, span);
      store(d, hn::NegMulAdd(v, s, hn::Mul(u, c)), out, span);
      store(d, hn::MulAdd(u, s, hn::Mul(v, c)), out + half, span);
    }
  });
  if (x == y) return;
  const int64_t turned = a.heads * a.head_dim, rest = a.head_dim - 2 * half;
  if (rest > 0)
    for (int64_t at = 2 * half; at < turned; at += a.head_dim)
      std::memcpy(y + at, x + at, static_cast<size_t>(rest) * sizeof(T));
  std::memcpy(y + turned, x + turned, static_cast<size_t>(a.width - turned) * sizeof(T));
}

/// Rows [begin, end). `table` has for each position its cosines, then its sines.
void rotate(DType type, const Rotation& rotation, const float* table, const void* x, void* y, int64_t begin,
            int64_t end) {
  const Rotation a = rotation;
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    for (int64_t row = begin; row < end; ++row) {
      const T* in = static_cast<const T*>(x) + row * a.width;
      T* out = static_cast<T*>(y) + row * a.width;
      if (row < a.rows)
        rotate_row(a, table + (a.first + row % a.sequence) * 2 * a.half, in, out);
      else if (in != out)
        std::memcpy(out, in, static_cast<size_t>(a.width) * sizeof(T));
    }
  });
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
  const DType type = input(op, tensors, 0).dtype;
  const bool cached = a.cached;
  Rotation all;
  all.heads = a.heads + a.kv_heads;
  all.head_dim = a.head_dim;
  all.half = a.rotary_dims / 2;
  all.width = rows.width;
  all.rows = rows.count;
  all.sequence = cached ? rows.count : a.sequence;
  all.sign = a.inverse ? -1.0f : 1.0f;
  const int64_t limit = table_rows.count;
  const auto function = HWY_DYNAMIC_DISPATCH(rotate);
  return make_kernel([=](Operands operands, const Launch&) {
    const void* x = pointer<const void>(operands[0]);
    const float* table = pointer<const float>(operands[1]);
    void* y = pointer<void>(operands[cached ? 3 : 2]);
    Rotation rotation = all;
    if (cached) {
      const Positions real = new_positions(*pointer<const ops::StepInputs>(operands[2]), rows.count, limit);
      rotation.first = real.first;
      rotation.rows = real.count;
    }
    for_rows(threads, rows, [=](int64_t begin, int64_t end) { function(type, rotation, table, x, y, begin, end); });
  });
}

}  // namespace strata::device::cpu
#endif
