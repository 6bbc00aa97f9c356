// layer_norm, rms_norm and their backward: a row at a time, which stays in cache between its passes. The last pass
// fetches the next row, or memory would idle meanwhile; a prefetch past the end does nothing.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"
#include "device/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// Rows [begin, end). `beta` null: rms_norm, which has no mean either.
void norm(const float* x, const float* gamma, const float* beta, float* y, float* mean, float* rstd, int64_t width,
          float epsilon, int64_t begin, int64_t end) {
  const FloatTag d;
  const float scale = 1.0f / static_cast<float>(width);
  for (int64_t row = begin; row < end; ++row) {
    const float* in = x + row * width;
    float* out = y + row * width;
    float centre = 0;
    if (beta != nullptr)
      centre = scale * sum_vectors(d, width, [=](int64_t i, auto span) HWY_ATTR { return load(d, in + i, span); });
    const float variance = scale * sum_vectors(d, width, [=](int64_t i, auto span) HWY_ATTR {
                             const auto v = hn::Sub(load(d, in + i, span), hn::Set(d, centre));
                             return hn::Mul(v, v);
                           });
    const float inverse = 1.0f / std::sqrt(variance + epsilon);
    rstd[row] = inverse;
    if (beta != nullptr) {
      mean[row] = centre;
      each_vector(d, width, [=](int64_t i, auto span) HWY_ATTR {
        hwy::Prefetch(in + width + i);
        const auto normal = hn::Mul(hn::Sub(load(d, in + i, span), hn::Set(d, centre)), hn::Set(d, inverse));
        store(d, hn::MulAdd(normal, load(d, gamma + i, span), load(d, beta + i, span)), out + i, span);
      });
    } else {
      each_vector(d, width, [=](int64_t i, auto span) HWY_ATTR {
        hwy::Prefetch(in + width + i);
        const auto normal = hn::Mul(load(d, in + i, span), hn::Set(d, inverse));
        store(d, hn::Mul(normal, load(d, gamma + i, span)), out + i, span);
      });
    }
  }
}

/// Rows [begin, end), which are one chunk: their share of dgamma (and dbeta, if not null) is left in `dgamma`, `dbeta`.
/// dx = rstd (g - [mean of g] - n mean of g n), with n the normalised row and g = dy gamma.
void norm_backward(const float* dy, const float* x, const float* gamma, const float* mean, const float* rstd,
                   const float* addend, float* dx, float* dgamma, float* dbeta, int64_t width, int64_t begin,
                   int64_t end) {
  const FloatTag d;
  const float scale = 1.0f / static_cast<float>(width);
  std::memset(dgamma, 0, static_cast<size_t>(width) * sizeof(float));
  if (dbeta != nullptr) std::memset(dbeta, 0, static_cast<size_t>(width) * sizeof(float));
  for (int64_t row = begin; row < end; ++row) {
    const float *gradient = dy + row * width, *in = x + row * width;
    const float* more = addend == nullptr ? nullptr : addend + row * width;
    float* out = dx + row * width;
    const float inverse = rstd[row], centre = mean == nullptr ? 0.0f : mean[row];
    const Sums sums = sum_vectors_twice(d, width, [=](int64_t i, auto span) HWY_ATTR {
      const auto normal = hn::Mul(hn::Sub(load(d, in + i, span), hn::Set(d, centre)), hn::Set(d, inverse));
      const auto v = load(d, gradient + i, span);
      if (dbeta != nullptr) store(d, hn::Add(load(d, dbeta + i, span), v), dbeta + i, span);
      store(d, hn::MulAdd(v, normal, load(d, dgamma + i, span)), dgamma + i, span);
      const auto g = hn::Mul(v, load(d, gamma + i, span));
      return FloatVectors{g, hn::Mul(g, normal)};
    });
    const float mean_g = dbeta != nullptr ? scale * sums.first : 0, mean_gn = scale * sums.second;
    each_vector(d, width, [=](int64_t i, auto span) HWY_ATTR {
      hwy::Prefetch(gradient + width + i);
      hwy::Prefetch(in + width + i);
      const auto normal = hn::Mul(hn::Sub(load(d, in + i, span), hn::Set(d, centre)), hn::Set(d, inverse));
      const auto g = hn::Sub(hn::Mul(load(d, gradient + i, span), load(d, gamma + i, span)), hn::Set(d, mean_g));
      const auto change = hn::NegMulAdd(normal, hn::Set(d, mean_gn), g);
      const auto base = more == nullptr ? hn::Zero(d) : load(d, more + i, span);
      store(d, hn::MulAdd(change, hn::Set(d, inverse), base), out + i, span);
    });
  }
}

/// to[begin, end) = (accumulate ? to : 0) + the chunks' shares, in chunk order; chunks lie `stride` apart.
void sum_chunks(const float* shares, int64_t chunks, int64_t stride, float* to, bool accumulate, int64_t begin,
                int64_t end) {
  const FloatTag d;
  each_vector(d, end - begin, [=](int64_t i, auto span) HWY_ATTR {
    const float* column = shares + begin + i;
    auto sum = load(d, column, span);
    for (int64_t chunk = 1; chunk < chunks; ++chunk) sum = hn::Add(sum, load(d, column + chunk * stride, span));
    if (accumulate) sum = hn::Add(load(d, to + begin + i, span), sum);
    store(d, sum, to + begin + i, span);
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

constexpr int64_t least = 4096;  // elements a thread must have for another one to pay

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  const bool layer = op.kind == ops::Kind::layer_norm;
  check_operands(op, layer ? 3 : 2, layer ? 3 : 2, layer ? 3 : 2, layer ? 3 : 2);
  const Rows rows = rows_of(input(op, tensors, 0));
  STRATA_CHECK(rows_of(output(op, tensors, 0)) == rows);
  for (size_t i = 1; i < op.in.size(); ++i) STRATA_CHECK(input(op, tensors, i).shape.elements() == rows.width);
  for (size_t i = 1; i < op.out.size(); ++i) STRATA_CHECK(output(op, tensors, i).shape.elements() == rows.count);
  const float epsilon = op.as<ops::NormAttributes>().epsilon;
  const auto function = HWY_DYNAMIC_DISPATCH(norm);
  return make_kernel([=](Operands operands, const Launch&) {
    size_t next = 0;
    const float *x = pointer<const float>(operands[next++]), *gamma = pointer<const float>(operands[next++]);
    const float* beta = layer ? pointer<const float>(operands[next++]) : nullptr;
    float* y = pointer<float>(operands[next++]);
    float* mean = layer ? pointer<float>(operands[next++]) : nullptr;
    float* rstd = pointer<float>(operands[next++]);
    parallel_for(threads, rows.count, divide_up(least, rows.width), [=](int64_t begin, int64_t end) {
      function(x, gamma, beta, y, mean, rstd, rows.width, epsilon, begin, end);
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
  const int64_t chunks = divide_up(rows.count, norm_chunk_rows), width = rows.width, stride = layer ? 2 * width : width;
  const auto function = HWY_DYNAMIC_DISPATCH(norm_backward);
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_chunks);
  return make_kernel([=](Operands operands, const Launch&) {
    size_t next = 0;
    const float *dy = pointer<const float>(operands[next++]), *x = pointer<const float>(operands[next++]);
    const float* gamma = pointer<const float>(operands[next++]);
    const float* mean = layer ? pointer<const float>(operands[next++]) : nullptr;
    const float* rstd = pointer<const float>(operands[next++]);
    const float* addend = added ? pointer<const float>(operands[next++]) : nullptr;
    float *dx = pointer<float>(operands[next++]), *dgamma = pointer<float>(operands[next++]);
    float* dbeta = layer ? pointer<float>(operands[next++]) : nullptr;
    float* shares = pointer<float>(operands[next++]);
    parallel_for(threads, chunks, divide_up(least, norm_chunk_rows * width), [=](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        float* share = shares + chunk * stride;
        function(dy, x, gamma, mean, rstd, addend, dx, share, layer ? share + width : nullptr, width,
                 chunk * norm_chunk_rows, std::min((chunk + 1) * norm_chunk_rows, rows.count));
      }
    });
    parallel_for(threads, width, divide_up(least, chunks), [=](int64_t begin, int64_t end) {
      sum(shares, chunks, stride, dgamma, accumulate, begin, end);
      if (layer) sum(shares + width, chunks, stride, dbeta, accumulate, begin, end);
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
