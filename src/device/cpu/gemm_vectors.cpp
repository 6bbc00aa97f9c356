#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/gemm_vectors.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>

#include "core/error.h"
#include "device/cpu/gemm_vectors.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

template <typename T>
HWY_INLINE float value_of(const T* from) {
  const FloatTag d;
  return hn::GetLane(load(d, from, Part{1}));
}

template <typename T>
HWY_INLINE void put_dot(FloatTag d, FloatVector sum, const T* bias, T* y) {
  const float dot = hn::GetLane(hn::SumOfLanes(d, sum)) + (bias != nullptr ? value_of(bias) : 0.0f);
  store(d, hn::Set(d, dot), y, Part{1});
}

/// One vector of each of one or two rows of x times that of each of one or four rows of w.
template <int kRows, int kColumns, typename T, class Span>
HWY_INLINE void dots_step(const T* x, const T* w, int64_t inner, Span span, FloatVector& s00, FloatVector& s01,
                          FloatVector& s02, FloatVector& s03, FloatVector& s10, FloatVector& s11, FloatVector& s12,
                          FloatVector& s13) {
  const FloatTag d;
  const auto x0 = load(d, x, span);
  const auto x1 = kRows > 1 ? load(d, x + inner, span) : x0;
  const auto w0 = load(d, w, span);
  s00 = hn::MulAdd(x0, w0, s00);
  if constexpr (kRows > 1) s10 = hn::MulAdd(x1, w0, s10);
  if constexpr (kColumns > 1) {
    const auto w1 = load(d, w + inner, span), w2 = load(d, w + 2 * inner, span), w3 = load(d, w + 3 * inner, span);
    s01 = hn::MulAdd(x0, w1, s01);
    s02 = hn::MulAdd(x0, w2, s02);
    s03 = hn::MulAdd(x0, w3, s03);
    if constexpr (kRows > 1) {
      s11 = hn::MulAdd(x1, w1, s11);
      s12 = hn::MulAdd(x1, w2, s12);
      s13 = hn::MulAdd(x1, w3, s13);
    }
  }
}

/// y[r][c] = x[r] . w[c] (+ bias[c]) for one or two rows r and one or four columns c. An element's bits do not depend on
/// how many of either there are.
template <int kRows, int kColumns, typename T>
HWY_INLINE void dots(const T* x, const T* w, const T* bias, T* y, int64_t inner, int64_t outer) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s00 = hn::Zero(d), s01 = s00, s02 = s00, s03 = s00, s10 = s00, s11 = s00, s12 = s00, s13 = s00;
  int64_t i = 0;
  for (; i + lanes <= inner; i += lanes)
    dots_step<kRows, kColumns>(x + i, w + i, inner, Whole{}, s00, s01, s02, s03, s10, s11, s12, s13);
  if (i < inner)
    dots_step<kRows, kColumns>(x + i, w + i, inner, Part{static_cast<size_t>(inner - i)}, s00, s01, s02, s03, s10, s11,
                               s12, s13);
  const T* second = bias != nullptr && kColumns > 1 ? bias + 1 : bias;
  put_dot(d, s00, bias, y);
  if constexpr (kRows > 1) put_dot(d, s10, bias, y + outer);
  if constexpr (kColumns > 1) {
    const auto next = [&](int64_t n) { return second != nullptr ? second + n : nullptr; };
    put_dot(d, s01, next(0), y + 1);
    put_dot(d, s02, next(1), y + 2);
    put_dot(d, s03, next(2), y + 3);
    if constexpr (kRows > 1) {
      put_dot(d, s11, next(0), y + outer + 1);
      put_dot(d, s12, next(1), y + outer + 2);
      put_dot(d, s13, next(2), y + outer + 3);
    }
  }
}

template <typename T>
void linear_few_rows_of(const void* x_at, const void* w_at, const void* bias_at, void* y_at, int64_t rows,
                        int64_t inner, int64_t outer, int64_t begin, int64_t end) {
  const T *x = static_cast<const T*>(x_at), *w = static_cast<const T*>(w_at), *bias = static_cast<const T*>(bias_at);
  T* y = static_cast<T*>(y_at);
  for (int64_t c = begin; c < end;) {
    const bool four = c + 4 <= end;
    const T* b = bias != nullptr ? bias + c : nullptr;
    for (int64_t r = 0; r < rows;) {
      const bool two = r + 2 <= rows;
      const T *from = x + r * inner, *weights = w + c * inner;
      T* to = y + r * outer + c;
      if (two && four)
        dots<2, 4>(from, weights, b, to, inner, outer);
      else if (two)
        dots<2, 1>(from, weights, b, to, inner, outer);
      else if (four)
        dots<1, 4>(from, weights, b, to, inner, outer);
      else
        dots<1, 1>(from, weights, b, to, inner, outer);
      r += two ? 2 : 1;
    }
    c += four ? 4 : 1;
  }
}

/// Rows of which a column's sum is taken before it joins the total: keeps rounding errors of long columns small.
constexpr int64_t sum_chunk = 64;

template <typename T>
void column_sums_of(const void* from, int64_t rows, int64_t stride, int64_t width, bool accumulate, float* sum) {
  const FloatTag d;
  const T* x = static_cast<const T*>(from);
  HWY_ALIGN float total[sum_columns] = {};
  for (int64_t begin = 0; begin < rows; begin += sum_chunk) {
    const int64_t end = std::min(begin + sum_chunk, rows);
    HWY_ALIGN float chunk[sum_columns] = {};
    float* partial = chunk;
    int64_t row = begin;
    for (; row + 4 <= end; row += 4) {
      const T *x0 = x + row * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
      each_vector(d, width, [=](int64_t c, auto span) HWY_ATTR {
        const auto low = hn::Add(load(d, x0 + c, span), load(d, x1 + c, span));
        const auto high = hn::Add(load(d, x2 + c, span), load(d, x3 + c, span));
        store(d, hn::Add(load(d, partial + c, span), hn::Add(low, high)), partial + c, span);
      });
    }
    for (; row < end; ++row) {
      const T* x0 = x + row * stride;
      each_vector(d, width, [=](int64_t c, auto span) HWY_ATTR {
        store(d, hn::Add(load(d, partial + c, span), load(d, x0 + c, span)), partial + c, span);
      });
    }
    float* whole = total;
    each_vector(d, width, [=](int64_t c, auto span) HWY_ATTR {
      store(d, hn::Add(load(d, whole + c, span), load(d, partial + c, span)), whole + c, span);
    });
  }
  const float* whole = total;
  each_vector(d, width, [=](int64_t c, auto span) HWY_ATTR {
    auto v = load(d, whole + c, span);
    if (accumulate) v = hn::Add(load(d, sum + c, span), v);
    store(d, v, sum + c, span);
  });
}

template <typename T>
void widen_of(const void* from_at, float* to, int64_t begin, int64_t end) {
  const FloatTag d;
  const T* from = static_cast<const T*>(from_at) + begin;
  float* out = to + begin;
  each_vector(d, end - begin, [=](int64_t i, auto span) HWY_ATTR { store(d, load(d, from + i, span), out + i, span); });
}

template <typename T>
void narrow_of(const float* from_at, const void* addend_at, void* to, int64_t begin, int64_t end) {
  const FloatTag d;
  const float* from = from_at + begin;
  const T* addend = addend_at != nullptr ? static_cast<const T*>(addend_at) + begin : nullptr;
  T* out = static_cast<T*>(to) + begin;
  each_vector(d, end - begin, [=](int64_t i, auto span) HWY_ATTR {
    auto v = load(d, from + i, span);
    if (addend != nullptr) v = hn::Add(v, load(d, addend + i, span));
    store(d, v, out + i, span);
  });
}

// One exported function a loop, which gives the one for a type.
LinearFewRows few_rows_for(DType dtype) {
  return dtype == DType::bf16  ? linear_few_rows_of<Bfloat16>
         : dtype == DType::f16 ? linear_few_rows_of<Float16>
                               : linear_few_rows_of<float>;
}
ColumnSums sums_for(DType dtype) {
  return dtype == DType::bf16  ? column_sums_of<Bfloat16>
         : dtype == DType::f16 ? column_sums_of<Float16>
                               : column_sums_of<float>;
}
Widen widen_for(DType dtype) { return dtype == DType::bf16 ? widen_of<Bfloat16> : widen_of<Float16>; }
Narrow narrow_for(DType dtype) { return dtype == DType::bf16 ? narrow_of<Bfloat16> : narrow_of<Float16>; }

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(few_rows_for);
HWY_EXPORT(sums_for);
HWY_EXPORT(widen_for);
HWY_EXPORT(narrow_for);

LinearFewRows linear_few_rows(DType dtype) { return HWY_DYNAMIC_DISPATCH(few_rows_for)(dtype); }
ColumnSums column_sums(DType dtype) { return HWY_DYNAMIC_DISPATCH(sums_for)(dtype); }
Widen widen(DType dtype) {
  STRATA_CHECK(dtype == DType::bf16 || dtype == DType::f16, "{}", name_of(dtype));
  return HWY_DYNAMIC_DISPATCH(widen_for)(dtype);
}
Narrow narrow(DType dtype) {
  STRATA_CHECK(dtype == DType::bf16 || dtype == DType::f16, "{}", name_of(dtype));
  return HWY_DYNAMIC_DISPATCH(narrow_for)(dtype);
}

}  // namespace strata::device::cpu
#endif
