// gelu, swiglu and their backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/activation.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

// The exact form rests on the standard normal's upper tail Q(t), t = |x|: e^(-t^2/2) times a smooth ratio, and that ratio
// is u P(u), u = 1 / (1 + k t), with P a fit over t in [0, 14].
struct Tail {
  Pair t, ratio, e;  ///< Q = ratio e
};
/// Relative error of Q: 4e-8 for fp32 while t is small, 3e-4 for narrower types.
template <class T>
HWY_INLINE Tail tail_at(Pair x) {
  const Pair t = limited_abs(x, 40.0f), one = constant(1.0f), e_power = Mul(Mul(x, x), constant(-0.5f * log2_e));
  if constexpr (exact<T>) {
    const Pair u = Div(one, MulAdd(t, constant(0.35f), one));
    Pair p = MulAdd(u, constant(-0.029679522f), constant(0.1465458303f));
    p = MulAdd(p, u, constant(-0.2609612283f));
    p = MulAdd(p, u, constant(0.1650509959f));
    p = MulAdd(p, u, constant(-0.02704660827f));
    p = MulAdd(p, u, constant(0.1071145876f));
    p = MulAdd(p, u, constant(0.1194449168f));
    p = MulAdd(p, u, constant(0.1399122981f));
    p = MulAdd(p, u, constant(0.1396187126f));
    return {t, Mul(p, u), exp2_of<6>(e_power)};
  } else {
    const Pair u = reciprocal<T>(MulAdd(t, constant(0.3f), one));
    Pair p = MulAdd(u, constant(0.2088467205f), constant(0.03558557003f));
    p = MulAdd(p, u, constant(0.1374785016f));
    p = MulAdd(p, u, constant(0.1182043306f));
    return {t, Mul(p, u), exp2_of<3>(e_power)};
  }
}

// The tanh form: 0.5 x (1 + tanh(z)) = x sigmoid(2 z), z = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float twice_root = 1.5957691216f, twice_root_cubic = 1.5957691216f * 0.044715f;

template <class T>
HWY_INLINE Pair gelu_value(Pair x, bool tanh) {
  if (!tanh) {
    // x (1 - Q) if x is positive, else x Q.
    const Tail tail = tail_at<T>(x);
    return NegMulAdd(Mul(tail.t, tail.ratio), tail.e, Max(constant(0), x));
  }
  const Pair squared = Mul(x, x);
  if constexpr (exact<T>) {
    const Pair inner = MulAdd(squared, constant(twice_root_cubic), constant(twice_root));
    return Mul(x, sigmoid<T>(Mul(x, inner)));
  } else {
    const Pair inner = MulAdd(squared, constant(-log2_e * twice_root_cubic), constant(-log2_e * twice_root));
    return Mul(x, reciprocal<T>(Add(constant(1.0f), exp2_of<3>(Mul(x, inner)))));
  }
}

template <class T>
HWY_INLINE Pair gelu_gradient(Pair dy, Pair x, bool tanh) {
  const Pair one = constant(1.0f);
  if (!tanh) {
    // The slope is 1 - Q + t density if x is positive, else Q - t density.
    const Tail tail = tail_at<T>(x);
    const Pair bend = Mul(MulSub(tail.t, constant(0.3989422804f), tail.ratio), tail.e);
    return Mul(dy, Add(turn_sign(bend, x), step(x)));
  }
  // Past 9 the slope is 0 or 1 to the last bit, and e^-2z is still finite.
  const Pair v = exact<T> ? Max(constant(-9.0f), Min(constant(9.0f), x)) : limited(x, 9.0f), squared = Mul(v, v);
  const Pair slope = Mul(v, MulAdd(squared, constant(3 * twice_root_cubic), constant(twice_root)));  // x 2z'
  if constexpr (exact<T>) {
    const Pair z = Mul(v, MulAdd(squared, constant(twice_root_cubic), constant(twice_root)));
    const Pair e = exp_of(Sub(constant(-0.0f), z)), s = Div(one, Add(one, e));
    // d/dx x s(2z) = s + s (1 - s) x 2z'; 1 - s = e s, which does not cancel.
    return keep_nan(x, Mul(dy, MulAdd(Mul(Mul(e, s), s), slope, s)));
  } else {
    const Pair z = Mul(x, MulAdd(squared, constant(-log2_e * twice_root_cubic), constant(-log2_e * twice_root)));
    const Pair s = reciprocal<T>(Add(one, exp2_of<3>(z)));
    return keep_nan(x, Mul(Mul(dy, s), MulAdd(Sub(one, s), slope, one)));
  }
}

template <class T>
HWY_INLINE void gelu_of(bool tanh, const T* x, T* y, int64_t count) {
  // Two loops, not a choice inside one.
  if (tanh)
    map(
        count, y, [](Pair v) HWY_ATTR { return gelu_value<T>(v, true); }, x);
  else
    map(
        count, y, [](Pair v) HWY_ATTR { return gelu_value<T>(v, false); }, x);
}

template <class T>
HWY_INLINE void gelu_backward_of(bool tanh, const T* dy, const T* x, T* dx, int64_t count) {
  if (tanh)
    map(
        count, dx, [](Pair g, Pair v) HWY_ATTR { return gelu_gradient<T>(g, v, true); }, dy, x);
  else
    map(
        count, dx, [](Pair g, Pair v) HWY_ATTR { return gelu_gradient<T>(g, v, false); }, dy, x);
}

// The processor does not foresee where the next row's two halves begin, so they are asked for.
template <class T>
HWY_INLINE void swiglu_of(const T* gate, const T* up, T* y, int64_t count) {
  each_pair(count, [=](int64_t i, auto span) HWY_ATTR {
    prefetch(gate + 2 * count + i, pair_size);
    prefetch(up + 2 * count + i, pair_size);
    const Pair g = load_pair(gate + i, span);
    store_pair(Mul(Mul(g, sigmoid<T>(g)), load_pair(up + i, span)), y + i, span);
  });
}

template <class T>
HWY_INLINE void swiglu_backward_of(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count) {
  each_pair(count, [=](int64_t i, auto span) HWY_ATTR {
    prefetch(gate + 2 * count + i, pair_size);
    prefetch(up + 2 * count + i, pair_size);
    const Pair g = load_pair(gate + i, span), u = load_pair(up + i, span), v = load_pair(dy + i, span);
    const Pair s = sigmoid<T>(g), silu = Mul(g, s);
    // silu' = s + g s (1 - s)
    const Pair slope = MulAdd(silu, Sub(constant(1.0f), s), s);
    store_pair(Mul(Mul(v, u), slope), dgate + i, span);
    store_pair(Mul(v, silu), dup + i, span);
  });
}

/// Elements [begin, end).
void gelu(DType type, bool tanh, const void* x, void* y, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    gelu_of(tanh, static_cast<const T*>(x) + begin, static_cast<T*>(y) + begin, end - begin);
  });
}

void gelu_backward(DType type, bool tanh, const void* dy, const void* x, void* dx, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    gelu_backward_of(tanh, static_cast<const T*>(dy) + begin, static_cast<const T*>(x) + begin,
                     static_cast<T*>(dx) + begin, end - begin);
  });
}

/// Rows [begin, end) of y.
void swiglu(DType type, const void* x, void* y, int64_t width, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = static_cast<const T*>(x) + row * 2 * width;
      swiglu_of(gate, gate + width, static_cast<T*>(y) + row * width, width);
    }
  });
}

void swiglu_backward(DType type, const void* dy, const void* x, void* dx, int64_t width, int64_t begin, int64_t end) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = static_cast<const T*>(x) + row * 2 * width;
      T* dgate = static_cast<T*>(dx) + row * 2 * width;
      swiglu_backward_of(static_cast<const T*>(dy) + row * width, gate, gate + width, dgate, dgate + width, width);
    }
  });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(gelu);
HWY_EXPORT(gelu_backward);
HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_backward);

namespace {

std::unique_ptr<Kernel> make_gelu(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 1, 1, 1, 1);
  const int64_t count = input(op, tensors, 0).shape.elements();
  STRATA_CHECK(output(op, tensors, 0).shape.elements() == count);
  const DType type = input(op, tensors, 0).dtype;
  const bool tanh = op.as<ops::GeluAttributes>().tanh;
  const auto function = HWY_DYNAMIC_DISPATCH(gelu);
  return make_kernel([=](Operands operands, const Launch&) {
    const void* x = pointer<const void>(operands[0]);
    void* y = pointer<void>(operands[1]);
    for_elements(threads, count, [=](int64_t begin, int64_t end) { function(type, tanh, x, y, begin, end); });
  });
}

std::unique_ptr<Kernel> make_gelu_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 2, 1, 1);
  const int64_t count = input(op, tensors, 1).shape.elements();
  STRATA_CHECK(input(op, tensors, 0).shape.elements() == count && output(op, tensors, 0).shape.elements() == count);
  const DType type = input(op, tensors, 0).dtype;
  const bool tanh = op.as<ops::GeluAttributes>().tanh;
  const auto function = HWY_DYNAMIC_DISPATCH(gelu_backward);
  return make_kernel([=](Operands operands, const Launch&) {
    const void *dy = pointer<const void>(operands[0]), *x = pointer<const void>(operands[1]);
    void* dx = pointer<void>(operands[2]);
    for_elements(threads, count, [=](int64_t begin, int64_t end) { function(type, tanh, dy, x, dx, begin, end); });
  });
}

std::unique_ptr<Kernel> make_swiglu(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 1, 1, 1, 1);
  const Rows x = rows_of(input(op, tensors, 0)), y = rows_of(output(op, tensors, 0));
  STRATA_CHECK(x.width == 2 * y.width && x.count == y.count);
  const DType type = input(op, tensors, 0).dtype;
  const auto function = HWY_DYNAMIC_DISPATCH(swiglu);
  return make_kernel([=](Operands operands, const Launch&) {
    const void* in = pointer<const void>(operands[0]);
    void* out = pointer<void>(operands[1]);
    for_rows(threads, y, [=](int64_t begin, int64_t end) { function(type, in, out, y.width, begin, end); });
  });
}

std::unique_ptr<Kernel> make_swiglu_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 2, 1, 1);
  const Rows dy = rows_of(input(op, tensors, 0)), x = rows_of(input(op, tensors, 1));
  STRATA_CHECK(x.width == 2 * dy.width && x.count == dy.count);
  STRATA_CHECK(output(op, tensors, 0).shape == input(op, tensors, 1).shape);
  const DType type = input(op, tensors, 0).dtype;
  const auto function = HWY_DYNAMIC_DISPATCH(swiglu_backward);
  return make_kernel([=](Operands operands, const Launch&) {
    const void *gradient = pointer<const void>(operands[0]), *in = pointer<const void>(operands[1]);
    void* out = pointer<void>(operands[2]);
    for_rows(threads, dy, [=](int64_t begin, int64_t end) { function(type, gradient, in, out, dy.width, begin, end); });
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
