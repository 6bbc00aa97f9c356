// gelu, swiglu and their backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/activation.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// The standard normal's distribution and density at x, from one exponential. The upper tail Q(t), t = |x|, is
/// density(t) times a smooth ratio; that ratio is u P(u), u = 1 / (1 + 0.35 t), with P a Chebyshev fit over t in
/// [0, 14], relative error 4e-8.
struct Normal {
  FloatVector distribution, density;
};
HWY_INLINE Normal normal_at(FloatTag d, FloatVector x) {
  const auto one = hn::Set(d, 1.0f), t = hn::Abs(x);
  const auto u = hn::Div(one, hn::MulAdd(t, hn::Set(d, 0.35f), one));
  auto p = hn::Set(d, -0.029679522f);
  p = hn::MulAdd(p, u, hn::Set(d, 0.1465458303f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.2609612283f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1650509959f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.02704660827f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1071145876f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1194449168f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1399122981f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1396187126f));
  const auto e = exp_of(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  const auto tail = hn::Mul(hn::Mul(p, u), e);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)), hn::Mul(e, hn::Set(d, 0.3989422804f))};
}

// The tanh form: 0.5 x (1 + tanh(z)) = x sigmoid(2 z), z = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float twice_root = 1.5957691216f, twice_root_cubic = 1.5957691216f * 0.044715f;

HWY_INLINE FloatVector tanh_gate(FloatTag d, FloatVector x, FloatVector squared) {
  return sigmoid(d, hn::Mul(x, hn::MulAdd(squared, hn::Set(d, twice_root_cubic), hn::Set(d, twice_root))));
}

void gelu_exact(const float* x, float* y, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    const auto v = load(d, x + i, span);
    store(d, hn::Mul(v, normal_at(d, v).distribution), y + i, span);
  });
}

void gelu_tanh(const float* x, float* y, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    const auto v = load(d, x + i, span);
    store(d, hn::Mul(v, tanh_gate(d, v, hn::Mul(v, v))), y + i, span);
  });
}

void gelu_exact_backward(const float* dy, const float* x, float* dx, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    const auto v = load(d, x + i, span);
    const Normal normal = normal_at(d, v);
    const auto slope = hn::MulAdd(v, normal.density, normal.distribution);
    store(d, hn::Mul(load(d, dy + i, span), slope), dx + i, span);
  });
}

void gelu_tanh_backward(const float* dy, const float* x, float* dx, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    const auto one = hn::Set(d, 1.0f);
    // Past 9 the slope is 0 or 1 to the last bit, and e^-2z is still finite.
    const auto v = hn::Max(hn::Set(d, -9.0f), hn::Min(hn::Set(d, 9.0f), load(d, x + i, span)));
    const auto squared = hn::Mul(v, v);
    const auto z = hn::Mul(v, hn::MulAdd(squared, hn::Set(d, twice_root_cubic), hn::Set(d, twice_root)));
    const auto e = exp_of(d, hn::Neg(z)), s = hn::Div(one, hn::Add(one, e));
    // d/dx x s(2z) = s + x s (1 - s) 2z'; 1 - s = e s, which does not cancel.
    const auto inner = hn::MulAdd(squared, hn::Set(d, 3 * twice_root_cubic), hn::Set(d, twice_root));
    const auto bend = hn::Mul(hn::Mul(v, s), hn::Mul(hn::Mul(e, s), inner));
    store(d, hn::Mul(load(d, dy + i, span), hn::Add(s, bend)), dx + i, span);
  });
}

void swiglu(const float* gate, const float* up, float* y, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    const auto g = load(d, gate + i, span);
    store(d, hn::Mul(hn::Mul(g, sigmoid(d, g)), load(d, up + i, span)), y + i, span);
  });
}

void swiglu_backward(const float* dy, const float* gate, const float* up, float* dgate, float* dup, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    const auto g = load(d, gate + i, span), u = load(d, up + i, span), v = load(d, dy + i, span);
    const auto s = sigmoid(d, g), silu = hn::Mul(g, s);
    // silu' = s + g s (1 - s)
    const auto slope = hn::MulAdd(silu, hn::Sub(hn::Set(d, 1.0f), s), s);
    store(d, hn::Mul(hn::Mul(v, u), slope), dgate + i, span);
    store(d, hn::Mul(v, silu), dup + i, span);
  });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(gelu_exact);
HWY_EXPORT(gelu_tanh);
HWY_EXPORT(gelu_exact_backward);
HWY_EXPORT(gelu_tanh_backward);
HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_backward);

namespace {

/// Elements a thread must have at least for a second thread to pay.
constexpr int64_t least = 4096;

std::unique_ptr<Kernel> make_gelu(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 1, 1, 1, 1);
  const int64_t count = input(op, tensors, 0).shape.elements();
  STRATA_CHECK(output(op, tensors, 0).shape.elements() == count);
  const auto function =
      op.as<ops::GeluAttributes>().tanh ? HWY_DYNAMIC_DISPATCH(gelu_tanh) : HWY_DYNAMIC_DISPATCH(gelu_exact);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* x = pointer<const float>(operands[0]);
    float* y = pointer<float>(operands[1]);
    parallel_for(threads, count, least,
                 [=](int64_t begin, int64_t end) { function(x + begin, y + begin, end - begin); });
  });
}

std::unique_ptr<Kernel> make_gelu_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 2, 1, 1);
  const int64_t count = input(op, tensors, 1).shape.elements();
  STRATA_CHECK(input(op, tensors, 0).shape.elements() == count && output(op, tensors, 0).shape.elements() == count);
  const auto function = op.as<ops::GeluAttributes>().tanh ? HWY_DYNAMIC_DISPATCH(gelu_tanh_backward)
                                                          : HWY_DYNAMIC_DISPATCH(gelu_exact_backward);
  return make_kernel([=](Operands operands, const Launch&) {
    const float *dy = pointer<const float>(operands[0]), *x = pointer<const float>(operands[1]);
    float* dx = pointer<float>(operands[2]);
    parallel_for(threads, count, least,
                 [=](int64_t begin, int64_t end) { function(dy + begin, x + begin, dx + begin, end - begin); });
  });
}

std::unique_ptr<Kernel> make_swiglu(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 1, 1, 1, 1);
  const Rows x = rows_of(input(op, tensors, 0)), y = rows_of(output(op, tensors, 0));
  const int64_t width = y.width;
  STRATA_CHECK(x.width == 2 * width && x.count == y.count);
  const auto function = HWY_DYNAMIC_DISPATCH(swiglu);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* in = pointer<const float>(operands[0]);
    float* out = pointer<float>(operands[1]);
    parallel_for(threads, y.count, divide_up(least, width), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* gate = in + row * 2 * width;
        function(gate, gate + width, out + row * width, width);
      }
    });
  });
}

std::unique_ptr<Kernel> make_swiglu_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 2, 1, 1);
  const Rows dy = rows_of(input(op, tensors, 0)), x = rows_of(input(op, tensors, 1));
  const int64_t width = dy.width;
  STRATA_CHECK(x.width == 2 * width && x.count == dy.count);
  STRATA_CHECK(output(op, tensors, 0).shape == input(op, tensors, 1).shape);
  const auto function = HWY_DYNAMIC_DISPATCH(swiglu_backward);
  return make_kernel([=](Operands operands, const Launch&) {
    const float *gradient = pointer<const float>(operands[0]), *in = pointer<const float>(operands[1]);
    float* out = pointer<float>(operands[2]);
    parallel_for(threads, dy.count, divide_up(least, width), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* gate = in + row * 2 * width;
        float* dgate = out + row * 2 * width;
        function(gradient + row * width, gate, gate + width, dgate, dgate + width, width);
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_activation(const ops::Op& op, Tensors tensors, int threads) {
  switch (op.kind) {
    case ops::Kind::gelu: return make_gelu(op, tensors, threads);
    case ops::Kind::gelu_backward: return make_gelu_backward(op, tensors, threads);
    case ops::Kind::swiglu: return make_swiglu(op, tensors, threads);
    default: return make_swiglu_backward(op, tensors, threads);
  }
}

}  // namespace strata::device::cpu
#endif
