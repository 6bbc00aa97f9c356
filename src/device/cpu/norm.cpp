// layer_norm, rms_norm and their backward: a few rows at a time, which stay in cache between their passes. The last pass
// fetches the next rows, or memory would idle meanwhile; a prefetch past the end does nothing.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/parallel.h"
#include "device/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// Rows are taken so many at a time, that the end of one's sums does not keep the others waiting, and no more than stay in
/// the innermost cache.
template <class T>
constexpr int together = sizeof(T) > 2 ? 2 : 4;

/// Over R rows from x on: the sum of f(row, v) over each row's elements, in an order that depends on `width` and the
/// vector width only. Asks for the rows from `ahead` on meanwhile, if not null.
template <int R, class T, class F>
HWY_INLINE void sum_rows(const T* x, int64_t width, const T* ahead, const F& f, float* sums) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVector s[R][4];
  for (auto& row : s) row[0] = row[1] = row[2] = row[3] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const T* in = x + r * width + i;
      if (ahead != nullptr) prefetch(ahead + r * width + i, 4 * lanes);
      const Pair v0 = load_pair(in, Whole{}), v1 = load_pair(in + pair_size, Whole{});
      s[r][0] = hn::Add(s[r][0], f(r, v0.first));
      s[r][1] = hn::Add(s[r][1], f(r, v0.second));
      s[r][2] = hn::Add(s[r][2], f(r, v1.first));
      s[r][3] = hn::Add(s[r][3], f(r, v1.second));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const T* in = x + r * width;
    int64_t j = i;
    for (; j + lanes <= width; j += lanes) s[r][0] = hn::Add(s[r][0], f(r, load(d, in + j, Whole{})));
    if (j < width) {
      const Part part{static_cast<size_t>(width - j)};
      s[r][1] = hn::Add(s[r][1], keep(d, f(r, load(d, in + j, part)), part));
    }
    sums[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s[r][0], s[r][1]), hn::Add(s[r][2], s[r][3]))));
  }
}

/// R rows. `Layer`: layer_norm; else rms_norm, which has neither beta nor mean.
template <bool Layer, int R, class T>
HWY_INLINE void norm_rows(const T* x, const T* gamma, const T* beta, T* y, float* mean, float* rstd, int64_t width,
                          float epsilon) {
  const FloatTag d;
  const float scale = 1.0f / static_cast<float>(width);
  float centre[R] = {}, inverse[R];
  if constexpr (Layer) {
    sum_rows<R, T>(
        x, width, nullptr, [](int, auto v) HWY_ATTR { return v; }, centre);
    for (float& c : centre) c = scale * c;
  }
  sum_rows<R, T>(
      x, width, y,
      [&](int r, auto v) HWY_ATTR {
        const auto apart = hn::Sub(v, hn::Set(d, centre[r]));
        return hn::Mul(apart, apart);
      },
      inverse);
  for (int r = 0; r < R; ++r) {
    const float variance = scale * inverse[r];
    inverse[r] = 1.0f / std::sqrt(variance + epsilon);
    rstd[r] = inverse[r];
    if constexpr (Layer) mean[r] = centre[r];
  }
  const auto value = [&](int r, auto v, auto scaled, auto shifted) HWY_ATTR {
    if constexpr (Layer)
      return hn::MulAdd(hn::Mul(hn::Sub(v, hn::Set(d, centre[r])), hn::Set(d, inverse[r])), scaled, shifted);
    else
      return hn::Mul(hn::Mul(v, hn::Set(d, inverse[r])), scaled);
  };
  each_pair(width, [&](int64_t i, auto span) HWY_ATTR {
    const Pair g = load_pair(gamma + i, span);
    const Pair b = Layer ? load_pair(beta + i, span) : g;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const T* in = x + r * width + i;
      prefetch(in + R * width, pair_size);
      const Pair v = load_pair(in, span);
      store_pair({value(r, v.first, g.first, b.first), value(r, v.second, g.second, b.second)}, y + r * width + i,
                 span);
    }
  });
}

/// Rows [begin, end).
void norm(DType type, bool layer, const void* x, const void* gamma, const void* beta, void* y, float* mean, float* rstd,
          int64_t width, float epsilon, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    const T *from = static_cast<const T*>(x), *scales = static_cast<const T*>(gamma);
    T* to = static_cast<T*>(y);
    for (int64_t row = begin; row < end;) {
      const T* in = from + row * width;
      T* out = to + row * width;
      const bool many = row + together<T> <= end;
      if (layer && many)
        norm_rows<true, together<T>>(in, scales, static_cast<const T*>(beta), out, mean + row, rstd + row, width,
                                     epsilon);
      else if (layer)
        norm_rows<true, 1>(in, scales, static_cast<const T*>(beta), out, mean + row, rstd + row, width, epsilon);
      else if (many)
        norm_rows<false, together<T>, T>(in, scales, nullptr, out, nullptr, rstd + row, width, epsilon);
      else
        norm_rows<false, 1, T>(in, scales, nullptr, out, nullptr, rstd + row, width, epsilon);
      row += many ? together<T> : 1;
    }
  });
}

/// Operands of a backward, from the rows at hand on; `mean` and `dbeta` for layer_norm alone, `addend` may be null.
/// `dgamma` and `dbeta` are shares, added to, whole pairs in the order of load_pair.
template <class T>
struct Backward {
  const T *dy, *x, *gamma;
  const float *mean, *rstd;
  const T* addend;
  T* dx;
  float *dgamma, *dbeta;
};

/// R rows. dx = rstd (g - [mean of g] - n mean of g n), with n the normalised row and g = dy gamma.
template <bool Layer, int R, class T>
HWY_INLINE void norm_backward_rows(const Backward<T>& b, int64_t width) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float scale = 1.0f / static_cast<float>(width);
  FloatVector g_sum[R][2], gn_sum[R][2];
  for (int r = 0; r < R; ++r) g_sum[r][0] = g_sum[r][1] = gn_sum[r][0] = gn_sum[r][1] = hn::Zero(d);
  constexpr bool fewer_steps = !std::is_same_v<T, float>;  // fused where only bits are lost that T does not have
  float centre[R] = {}, inverse[R], offset[R];
  for (int r = 0; r < R; ++r) {
    inverse[r] = b.rstd[r];
    if constexpr (Layer) centre[r] = b.mean[r];
    offset[r] = -centre[r] * inverse[r];
  }
  const auto normal = [&](int r, FloatVector v) HWY_ATTR {
    if constexpr (fewer_steps)
      return hn::MulAdd(v, hn::Set(d, inverse[r]), hn::Set(d, offset[r]));
    else
      return hn::Mul(hn::Sub(v, hn::Set(d, centre[r])), hn::Set(d, inverse[r]));
  };
  // One vector of row r, into the sums numbered `half`.
  const auto add_up = [&](int r, int half, FloatVector x, FloatVector dy, FloatVector gamma, FloatVector& dgamma,
                          FloatVector& dbeta) HWY_ATTR {
    const auto n = normal(r, x);
    if constexpr (Layer) dbeta = hn::Add(dbeta, dy);
    dgamma = hn::MulAdd(dy, n, dgamma);
    const auto g = hn::Mul(dy, gamma);
    g_sum[r][half] = hn::Add(g_sum[r][half], g);
    gn_sum[r][half] = fewer_steps ? hn::MulAdd(g, n, gn_sum[r][half]) : hn::Add(gn_sum[r][half], hn::Mul(g, n));
  };
  int64_t i = 0;
  for (; i + pair_size <= width; i += pair_size) {
    const Pair gamma = load_pair(b.gamma + i, Whole{});
    Pair dgamma = load_pair(b.dgamma + i, Whole{});
    Pair dbeta = Layer ? load_pair(b.dbeta + i, Whole{}) : dgamma;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      if (b.addend != nullptr) prefetch(b.addend + r * width + i, pair_size);
      const Pair x = load_pair(b.x + r * width + i, Whole{}), dy = load_pair(b.dy + r * width + i, Whole{});
      add_up(r, 0, x.first, dy.first, gamma.first, dgamma.first, dbeta.first);
      add_up(r, 1, x.second, dy.second, gamma.second, dgamma.second, dbeta.second);
    }
    store_pair(dgamma, b.dgamma + i, Whole{});
    if constexpr (Layer) store_pair(dbeta, b.dbeta + i, Whole{});
  }
  const auto rest = [&](int half, auto span) HWY_ATTR {
    const auto gamma = load(d, b.gamma + i, span);
    auto dgamma = load(d, b.dgamma + i, span), dbeta = dgamma;
    if constexpr (Layer) dbeta = load(d, b.dbeta + i, span);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)  // dy is zero where there is nothing
      add_up(r, half, load(d, b.x + r * width + i, span), load(d, b.dy + r * width + i, span), gamma, dgamma, dbeta);
    store(d, dgamma, b.dgamma + i, span);
    if constexpr (Layer) store(d, dbeta, b.dbeta + i, span);
  };
  for (; i + lanes <= width; i += lanes) rest(0, Whole{});
  if (i < width) rest(1, Part{static_cast<size_t>(width - i)});

  float mean_g[R] = {}, mean_gn[R];
  for (int r = 0; r < R; ++r) {
    if constexpr (Layer) mean_g[r] = scale * hn::GetLane(hn::SumOfLanes(d, hn::Add(g_sum[r][0], g_sum[r][1])));
    mean_gn[r] = scale * hn::GetLane(hn::SumOfLanes(d, hn::Add(gn_sum[r][0], gn_sum[r][1])));
  }
  // dx is dy gamma rstd + slope x + level, too.
  float slope[R], level[R];
  for (int r = 0; r < R; ++r) {
    slope[r] = -inverse[r] * inverse[r] * mean_gn[r];
    level[r] = -centre[r] * slope[r] - inverse[r] * mean_g[r];
  }
  const auto change = [&](int r, FloatVector x, FloatVector dy, FloatVector gamma, FloatVector more) HWY_ATTR {
    if constexpr (fewer_steps) {
      const auto base = hn::MulAdd(x, hn::Set(d, slope[r]), hn::Add(more, hn::Set(d, level[r])));
      return hn::MulAdd(dy, hn::Mul(gamma, hn::Set(d, inverse[r])), base);
    }
    const auto g = hn::Sub(hn::Mul(dy, gamma), hn::Set(d, mean_g[r]));
    const auto to_mean = hn::NegMulAdd(normal(r, x), hn::Set(d, mean_gn[r]), g);
    return hn::MulAdd(to_mean, hn::Set(d, inverse[r]), more);
  };
  each_pair(width, [&](int64_t j, auto span) HWY_ATTR {
    const Pair gamma = load_pair(b.gamma + j, span);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const int64_t at = r * width + j;
      prefetch(b.dy + R * width + at, pair_size);
      prefetch(b.x + R * width + at, pair_size);
      const Pair x = load_pair(b.x + at, span), dy = load_pair(b.dy + at, span);
      const Pair more = b.addend == nullptr ? Pair{hn::Zero(d), hn::Zero(d)} : load_pair(b.addend + at, span);
      store_pair({change(r, x.first, dy.first, gamma.first, more.first),
                  change(r, x.second, dy.second, gamma.second, more.second)},
                 b.dx + at, span);
    }
  });
}

/// Rows [begin, end), which are one chunk: their share of dgamma (and dbeta, if not null) is left in `dgamma`, `dbeta`.
void norm_backward(DType type, const void* dy, const void* x, const void* gamma, const float* mean, const float* rstd,
                   const void* addend, void* dx, float* dgamma, float* dbeta, int64_t width, int64_t begin,
                   int64_t end) {
  std::memset(dgamma, 0, static_cast<size_t>(width) * sizeof(float));
  if (dbeta != nullptr) std::memset(dbeta, 0, static_cast<size_t>(width) * sizeof(float));
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    for (int64_t row = begin; row < end;) {
      const int64_t at = row * width;
      const Backward<T> b = {static_cast<const T*>(dy) + at,
                             static_cast<const T*>(x) + at,
                             static_cast<const T*>(gamma),
                             mean == nullptr ? nullptr : mean + row,
                             rstd + row,
                             addend == nullptr ? nullptr : static_cast<const T*>(addend) + at,
                             static_cast<T*>(dx) + at,
                             dgamma,
                             dbeta};
      const bool many = row + together<T> <= end;
      if (dbeta != nullptr && many)
        norm_backward_rows<true, together<T>>(b, width);
      else if (dbeta != nullptr)
        norm_backward_rows<true, 1>(b, width);
      else if (many)
        norm_backward_rows<false, together<T>>(b, width);
      else
        norm_backward_rows<false, 1>(b, width);
      row += many ? together<T> : 1;
    }
  });
}

/// to[begin, end) = (accumulate ? to : 0) + the chunks' shares, in chunk order; chunks lie `stride` apart. `begin` is a
/// multiple of a pair, `end` too or the last of the row.
void sum_chunks(DType type, const float* shares, int64_t chunks, int64_t stride, float* to, bool accumulate,
                int64_t begin, int64_t end) {
  const FloatTag d;
  const auto sum_of = [=](int64_t i, auto span) HWY_ATTR {
    auto sum = load(d, shares + i, span);
    for (int64_t chunk = 1; chunk < chunks; ++chunk) sum = hn::Add(sum, load(d, shares + chunk * stride + i, span));
    return sum;
  };
  int64_t i = begin;
#if HWY_TARGET != HWY_SCALAR
  if (type == DType::bf16) {  // even elements first: back in between each other
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + pair_size <= end; i += pair_size) {
      auto even = sum_of(i, Whole{}), odd = sum_of(i + lanes, Whole{});
      if (accumulate) {
        FloatVector old_even, old_odd;
        hn::LoadInterleaved2(d, to + i, old_even, old_odd);
        even = hn::Add(old_even, even);
        odd = hn::Add(old_odd, odd);
      }
      hn::StoreInterleaved2(even, odd, d, to + i);
    }
  }
#else
  (void)type;
#endif
  each_vector(d, end - i, [=](int64_t j, auto span) HWY_ATTR {
    auto sum = sum_of(i + j, span);
    if (accumulate) sum = hn::Add(load(d, to + i + j, span), sum);
    store(d, sum, to + i + j, span);
  });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(norm);
HWY_EXPORT(norm_backward);
HWY_EXPORT(sum_chunks);

namespace {

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  const bool layer = op.kind == ops::Kind::layer_norm;
  check_operands(op, layer ? 3 : 2, layer ? 3 : 2, layer ? 3 : 2, layer ? 3 : 2);
  const Rows rows = rows_of(input(op, tensors, 0));
  STRATA_CHECK(rows_of(output(op, tensors, 0)) == rows);
  for (size_t i = 1; i < op.in.size(); ++i) STRATA_CHECK(input(op, tensors, i).shape.elements() == rows.width);
  for (size_t i = 1; i < op.out.size(); ++i) STRATA_CHECK(output(op, tensors, i).shape.elements() == rows.count);
  const DType type = input(op, tensors, 0).dtype;
  const float epsilon = op.as<ops::NormAttributes>().epsilon;
  const auto function = HWY_DYNAMIC_DISPATCH(norm);
  return make_kernel([=](Operands operands, const Launch&) {
    size_t next = 0;
    const void *x = pointer<const void>(operands[next++]), *gamma = pointer<const void>(operands[next++]);
    const void* beta = layer ? pointer<const void>(operands[next++]) : nullptr;
    void* y = pointer<void>(operands[next++]);
    float* mean = layer ? pointer<float>(operands[next++]) : nullptr;
    float* rstd = pointer<float>(operands[next++]);
    for_rows(threads, rows, [=](int64_t begin, int64_t end) {
      function(type, layer, x, gamma, beta, y, mean, rstd, rows.width, epsilon, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_backward(const ops::Op& op, Tensors tensors, int threads) {
  const bool layer = op.kind == ops::Kind::layer_norm_backward;
  const size_t needed = layer ? 5 : 4;
  check_operands(op, needed, needed + 1, layer ? 3 : 2, layer ? 3 : 2);
  const Rows rows = rows_of(input(op, tensors, 0));
  STRATA_CHECK(rows_of(input(op, tensors, 1)) == rows && rows_of(output(op, tensors, 0)) == rows);
  STRATA_CHECK(input(op, tensors, 2).shape.elements() == rows.width);
  for (size_t i = 3; i < needed; ++i) STRATA_CHECK(input(op, tensors, i).shape.elements() == rows.count);
  for (size_t i = 1; i < op.out.size(); ++i) STRATA_CHECK(output(op, tensors, i).shape.elements() == rows.width);
  const bool added = op.in.size() > needed, accumulate = op.accumulate;
  if (added) STRATA_CHECK(rows_of(input(op, tensors, needed)) == rows);
  STRATA_CHECK(op.workspace >= 0, "{} needs a workspace", ops::name_of(op.kind));
  const DType type = input(op, tensors, 0).dtype;
  const int64_t chunks = divide_up(rows.count, norm_chunk_rows), width = rows.width, stride = layer ? 2 * width : width;
  const auto function = HWY_DYNAMIC_DISPATCH(norm_backward);
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_chunks);
  return make_kernel([=](Operands operands, const Launch&) {
    size_t next = 0;
    const void *dy = pointer<const void>(operands[next++]), *x = pointer<const void>(operands[next++]);
    const void* gamma = pointer<const void>(operands[next++]);
    const float* mean = layer ? pointer<const float>(operands[next++]) : nullptr;
    const float* rstd = pointer<const float>(operands[next++]);
    const void* addend = added ? pointer<const void>(operands[next++]) : nullptr;
    void* dx = pointer<void>(operands[next++]);
    float* dgamma = pointer<float>(operands[next++]);
    float* dbeta = layer ? pointer<float>(operands[next++]) : nullptr;
    float* shares = pointer<float>(operands[next++]);
    for_rows(threads, {chunks, norm_chunk_rows * width}, [=](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        float* share = shares + chunk * stride;
        function(type, dy, x, gamma, mean, rstd, addend, dx, share, layer ? share + width : nullptr, width,
                 chunk * norm_chunk_rows, std::min((chunk + 1) * norm_chunk_rows, rows.count));
      }
    });
    constexpr int64_t piece = 64;  // a multiple of any vectors' pair
    for_rows(threads, {divide_up(width, piece), piece * chunks}, [=](int64_t begin, int64_t end) {
      const int64_t from = begin * piece, to = std::min(end * piece, width);
      sum(type, shares, chunks, stride, dgamma, accumulate, from, to);
      if (layer) sum(type, shares + width, chunks, stride, dbeta, accumulate, from, to);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_norm(const ops::Op& op, Tensors tensors, int threads) {
  const bool forward = op.kind == ops::Kind::layer_norm || op.kind == ops::Kind::rms_norm;
  return forward ? make_forward(op, tensors, threads) : make_backward(op, tensors, threads);
}

}  // namespace strata::device::cpu
#endif
