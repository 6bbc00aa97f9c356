// linear, linear_backward_input, linear_backward_weight: matrix products by oneDNN on plain row-major operands, and
// kernels of our own for a handful of rows (generation) and for the bias gradient.
//
// Operands are never reordered. Products are cut where that was measured to help: wide results of the backward products
// into ranges of columns, a long sum of linear_backward_input into pieces that are added in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/allocations.h"
#include "device/cpu/kernels.h"
#include "device/cpu/onednn.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

HWY_INLINE void put_dot(FloatTag d, FloatVector sum, const float* bias, float* y) {
  *y = hn::GetLane(hn::SumOfLanes(d, sum)) + (bias != nullptr ? *bias : 0.0f);
}

/// One vector of each of one or two rows of x times that of each of one or four rows of w.
template <int kRows, int kColumns, class Span>
HWY_INLINE void dots_step(const float* x, const float* w, int64_t inner, Span span, FloatVector& s00, FloatVector& s01,
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
template <int kRows, int kColumns>
HWY_INLINE void dots(const float* x, const float* w, const float* bias, float* y, int64_t inner, int64_t outer) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s00 = hn::Zero(d), s01 = s00, s02 = s00, s03 = s00, s10 = s00, s11 = s00, s12 = s00, s13 = s00;
  int64_t i = 0;
  for (; i + lanes <= inner; i += lanes)
    dots_step<kRows, kColumns>(x + i, w + i, inner, Whole{}, s00, s01, s02, s03, s10, s11, s12, s13);
  if (i < inner)
    dots_step<kRows, kColumns>(x + i, w + i, inner, Part{static_cast<size_t>(inner - i)}, s00, s01, s02, s03, s10, s11,
                               s12, s13);
  const float* second = bias != nullptr && kColumns > 1 ? bias + 1 : bias;
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

/// Columns [begin, end) of y = x w^T + bias, for few rows: w is read once, four of its rows at a time.
void linear_few_rows(const float* x, const float* w, const float* bias, float* y, int64_t rows, int64_t inner,
                     int64_t outer, int64_t begin, int64_t end) {
  for (int64_t c = begin; c < end;) {
    const bool four = c + 4 <= end;
    const float* b = bias != nullptr ? bias + c : nullptr;
    for (int64_t r = 0; r < rows;) {
      const bool two = r + 2 <= rows;
      const float *from = x + r * inner, *weights = w + c * inner;
      float* to = y + r * outer + c;
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
/// Columns that are summed together.
constexpr int64_t sum_columns = 256;

/// sum[c] (+)= x[0][c] + x[1][c] + ... for c < width <= sum_columns; the order does not depend on width or lanes.
void column_sums(const float* x, int64_t rows, int64_t stride, int64_t width, bool accumulate, float* sum) {
  const FloatTag d;
  HWY_ALIGN float total[sum_columns] = {};
  for (int64_t begin = 0; begin < rows; begin += sum_chunk) {
    const int64_t end = std::min(begin + sum_chunk, rows);
    HWY_ALIGN float chunk[sum_columns] = {};
    float* partial = chunk;
    int64_t row = begin;
    for (; row + 4 <= end; row += 4) {
      const float *x0 = x + row * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
      each_vector(d, width, [=](int64_t c, auto span) HWY_ATTR {
        const auto low = hn::Add(load(d, x0 + c, span), load(d, x1 + c, span));
        const auto high = hn::Add(load(d, x2 + c, span), load(d, x3 + c, span));
        store(d, hn::Add(load(d, partial + c, span), hn::Add(low, high)), partial + c, span);
      });
    }
    for (; row < end; ++row) {
      const float* x0 = x + row * stride;
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

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(linear_few_rows);
HWY_EXPORT(column_sums);

namespace {

using onednn::Matrix;

/// Up to this many rows reading w once counts for more than anything else; the library turns each block of it first.
constexpr int64_t few_rows = 4;
/// A sum over more than this many rows of w misses the translation look-aside buffer: its rows lie on a page each.
constexpr int64_t longest_sum = 1152;
/// Columns of a result of a backward product that are computed at a time.
constexpr int64_t widest_result = 1536;

/// Products that together make one operation, planned and, for running, built.
class Products {
 public:
  explicit Products(int threads) : threads_(threads) {}

  /// Adds c (+)= a b (+ bias), where a, b and c lie at these offsets (elements) in the operands of run().
  void add(const Matrix& a, const Matrix& b, const Matrix& c, std::optional<DType> bias, bool accumulate,
           int64_t from_a, int64_t from_b, int64_t to_c) {
    const Shape shape{a.rows, a.columns, b.columns, accumulate};
    size_t plan = 0;
    while (plan < shapes_.size() && !(shapes_[plan] == shape)) ++plan;
    if (plan == shapes_.size()) {
      const onednn::ThreadScope scope(threads_);
      shapes_.push_back(shape);
      plans_.push_back(onednn::plan_product(a, b, c, bias, accumulate));
      scratch_bytes_ = std::max(scratch_bytes_, onednn::scratch_bytes(plans_.back()));
    }
    calls_.push_back({plan, from_a * size_of(a.dtype), from_b * size_of(b.dtype), to_c * size_of(c.dtype)});
    bias_ = bias.has_value();
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }

  void build() {
    const onednn::ThreadScope scope(threads_);
    for (const onednn::ProductPlan& plan : plans_) built_.emplace_back(plan);
  }

  void run(Address a, Address b, Address bias, Address c, Address scratch) {
    const onednn::ThreadScope scope(threads_);
    for (const Call& call : calls_)
      built_[call.plan].run(a + call.from_a, b + call.from_b, bias, c + call.to_c, scratch, bias_);
  }

 private:
  struct Shape {
    int64_t rows, inner, columns;
    bool accumulate;
    bool operator==(const Shape&) const = default;
  };
  struct Call {
    size_t plan;
    int64_t from_a, from_b, to_c;
  };
  /// A primitive with its arguments bound to memories whose addresses are set at each run.
  class Built {
   public:
    explicit Built(const onednn::ProductPlan& plan)
        : primitive_(plan),
          a_(plan.src_desc(), onednn::engine(), DNNL_MEMORY_NONE),
          b_(plan.weights_desc(), onednn::engine(), DNNL_MEMORY_NONE),
          c_(plan.dst_desc(), onednn::engine(), DNNL_MEMORY_NONE),
          scratch_(plan.scratchpad_desc(), onednn::engine(), DNNL_MEMORY_NONE),
          bias_(plan.bias_desc(), onednn::engine(), DNNL_MEMORY_NONE),
          arguments_{{{DNNL_ARG_SRC, a_.get()},
                      {DNNL_ARG_WEIGHTS, b_.get()},
                      {DNNL_ARG_DST, c_.get()},
                      {DNNL_ARG_SCRATCHPAD, scratch_.get()},
                      {DNNL_ARG_BIAS, bias_.get()}}} {}

    void run(Address a, Address b, Address bias, Address c, Address scratch, bool with_bias) {
      a_.set_data_handle(pointer<void>(a));
      b_.set_data_handle(pointer<void>(b));
      c_.set_data_handle(pointer<void>(c));
      scratch_.set_data_handle(pointer<void>(scratch));
      if (with_bias) bias_.set_data_handle(pointer<void>(bias));
      const allocations::LibraryCall library;
      // Not primitive::execute(): it copies the arguments into a vector of its own.
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(primitive_.get(), onednn::stream().get(), with_bias ? 5 : 4, arguments_.data()),
          "a matrix product failed");
    }

   private:
    dnnl::matmul primitive_;
    dnnl::memory a_, b_, c_, scratch_, bias_;
    std::array<dnnl_exec_arg_t, 5> arguments_;
  };

  int threads_;
  std::vector<Shape> shapes_;
  std::vector<onednn::ProductPlan> plans_;
  std::vector<Built> built_;
  std::vector<Call> calls_;
  int64_t scratch_bytes_ = 0;
  bool bias_ = false;
};

/// Near-equal pieces of [0, count), each at most `most` and all but the last a multiple of 64.
std::vector<std::pair<int64_t, int64_t>> pieces(int64_t count, int64_t most) {
  const int64_t size = round_up(divide_up(count, divide_up(count, most)), 64);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0; begin < count; begin += size) ranges.emplace_back(begin, std::min(begin + size, count));
  return ranges;
}

/// The shapes of one operation: `rows` tokens, w of `outer` x `inner`.
struct Linear {
  int64_t rows = 0, inner = 0, outer = 0;
  DType tokens = DType::f32, weights = DType::f32, gradients = DType::f32;
  bool bias = false;
};

Matrix row_major(int64_t rows, int64_t columns, int64_t stride, DType dtype) {
  return {rows, columns, stride, 1, dtype};
}

Linear forward_of(const ops::Op& op, Tensors tensors) {
  check_operands(op, 2, 3, 1, 1);
  const ops::Tensor &x = input(op, tensors, 0), &w = input(op, tensors, 1), &y = output(op, tensors, 0);
  const Rows rx = rows_of(x), rw = rows_of(w), ry = rows_of(y);
  STRATA_CHECK(rx.width == rw.width && ry == (Rows{rx.count, rw.count}), "{} = {} {}^T", y.name, x.name, w.name);
  const bool bias = op.in.size() == 3;
  if (bias) STRATA_CHECK(input(op, tensors, 2).shape.elements() == rw.count, "{}", input(op, tensors, 2).name);
  return {rx.count, rw.width, rw.count, x.dtype, w.dtype, y.dtype, bias};
}

Linear backward_input_of(const ops::Op& op, Tensors tensors) {
  check_operands(op, 2, 3, 1, 1);
  const ops::Tensor &dy = input(op, tensors, 0), &w = input(op, tensors, 1), &dx = output(op, tensors, 0);
  const Rows rdy = rows_of(dy), rw = rows_of(w), rdx = rows_of(dx);
  STRATA_CHECK(rdy.width == rw.count && rdx == (Rows{rdy.count, rw.width}), "{} = {} {}", dx.name, dy.name, w.name);
  if (op.in.size() == 3) {
    const ops::Tensor& addend = input(op, tensors, 2);
    STRATA_CHECK(rows_of(addend) == rdx && addend.dtype == dx.dtype, "{}", addend.name);
  }
  return {rdx.count, rw.width, rw.count, dx.dtype, w.dtype, dy.dtype, false};
}

Linear backward_weight_of(const ops::Op& op, Tensors tensors) {
  check_operands(op, 2, 2, 1, 2);
  const ops::Tensor &dy = input(op, tensors, 0), &x = input(op, tensors, 1), &dw = output(op, tensors, 0);
  const Rows rdy = rows_of(dy), rx = rows_of(x), rdw = rows_of(dw);
  STRATA_CHECK(rdy.count == rx.count && rdw == (Rows{rdy.width, rx.width}), "{} = {}^T {}", dw.name, dy.name, x.name);
  const bool bias = op.out.size() == 2;
  if (bias) STRATA_CHECK(output(op, tensors, 1).shape.elements() == rdy.width, "{}", output(op, tensors, 1).name);
  return {rx.count, rx.width, rdy.width, x.dtype, dw.dtype, dy.dtype, bias};
}

void check_workspace(const ops::Op& op, Tensors tensors, int64_t bytes) {
  STRATA_CHECK(bytes == 0 || (op.workspace >= 0 && tensors[static_cast<size_t>(op.workspace)].bytes() >= bytes),
               "{} wants a workspace of {} bytes", ops::name_of(op.kind), bytes);
}

bool by_dots(const Linear& l) { return l.rows <= few_rows && l.tokens == DType::f32 && l.weights == DType::f32; }

/// y = x w^T + b
Products forward_products(const Linear& l, int threads) {
  Products products(threads);
  products.add(row_major(l.rows, l.inner, l.inner, l.tokens),
               row_major(l.outer, l.inner, l.inner, l.weights).transposed(),
               row_major(l.rows, l.outer, l.outer, l.gradients), l.bias ? std::optional(l.weights) : std::nullopt,
               false, 0, 0, 0);
  return products;
}

/// dx (+)= dy w: a wide result in ranges of columns, else a long sum in pieces.
Products backward_input_products(const Linear& l, bool add, int threads) {
  Products products(threads);
  const auto part = [&](int64_t from, int64_t to, int64_t left, int64_t right, bool sum) {
    products.add(
        row_major(l.rows, to - from, l.outer, l.gradients), row_major(to - from, right - left, l.inner, l.weights),
        row_major(l.rows, right - left, l.inner, l.tokens), std::nullopt, sum, from, from * l.inner + left, left);
  };
  if (l.inner > widest_result) {
    for (const auto& [left, right] : pieces(l.inner, widest_result)) part(0, l.outer, left, right, add);
    return products;
  }
  // A result that is stored in fewer bits must not be rounded between pieces.
  for (const auto& [from, to] : pieces(l.outer, l.tokens == DType::f32 ? longest_sum : l.outer))
    part(from, to, 0, l.inner, add || from > 0);
  return products;
}

/// dw (+)= dy^T x
Products backward_weight_products(const Linear& l, bool accumulate, int threads) {
  Products products(threads);
  for (const auto& [begin, end] : pieces(l.inner, widest_result))
    products.add(row_major(l.rows, l.outer, l.outer, l.gradients).transposed(),
                 row_major(l.rows, end - begin, l.inner, l.tokens), row_major(l.outer, end - begin, l.inner, l.weights),
                 std::nullopt, accumulate, 0, begin, begin);
  return products;
}

/// Operand number `index`, or none.
Address optional_operand(Operands operands, size_t index) {
  return index < operands.size() ? operands[index] : Address();
}

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  const Linear l = forward_of(op, tensors);
  const size_t y = op.in.size();
  if (by_dots(l)) {
    const auto function = HWY_DYNAMIC_DISPATCH(linear_few_rows);
    return make_kernel([=](Operands operands, const Launch&) {
      // A block's columns are a multiple of four, so that an element's neighbours do not depend on threads.
      parallel_for(threads, divide_up(l.outer, 4), divide_up(4096, l.inner), [=](int64_t begin, int64_t end) {
        function(pointer<const float>(operands[0]), pointer<const float>(operands[1]),
                 l.bias ? pointer<const float>(operands[2]) : nullptr, pointer<float>(operands[y]), l.rows, l.inner,
                 l.outer, 4 * begin, std::min(4 * end, l.outer));
      });
    });
  }
  Products products = forward_products(l, threads);
  check_workspace(op, tensors, products.scratch_bytes());
  products.build();
  return make_kernel([=, products = std::move(products)](Operands operands, const Launch&) mutable {
    products.run(operands[0], operands[1], l.bias ? operands[2] : Address(), operands[y],
                 optional_operand(operands, y + 1));
  });
}

std::unique_ptr<Kernel> make_backward_input(const ops::Op& op, Tensors tensors, int threads) {
  const Linear l = backward_input_of(op, tensors);
  const bool add = op.in.size() == 3;
  const size_t dx = op.in.size();
  const int64_t bytes = output(op, tensors, 0).bytes();
  Products products = backward_input_products(l, add, threads);
  check_workspace(op, tensors, products.scratch_bytes());
  products.build();
  return make_kernel([=, products = std::move(products)](Operands operands, const Launch&) mutable {
    if (add && operands[2] != operands[dx]) {
      const char* from = pointer<const char>(operands[2]);
      char* to = pointer<char>(operands[dx]);
      parallel_for(threads, bytes, 1 << 16, [=](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
    }
    products.run(operands[0], operands[1], Address(), operands[dx], optional_operand(operands, dx + 1));
  });
}

std::unique_ptr<Kernel> make_backward_weight(const ops::Op& op, Tensors tensors, int threads) {
  const Linear l = backward_weight_of(op, tensors);
  const bool accumulate = op.accumulate;
  const size_t scratch = 2 + op.out.size();
  Products products = backward_weight_products(l, accumulate, threads);
  check_workspace(op, tensors, products.scratch_bytes());
  products.build();
  const auto sums = HWY_DYNAMIC_DISPATCH(column_sums);
  constexpr int64_t block = 256;
  return make_kernel([=, products = std::move(products)](Operands operands, const Launch&) mutable {
    products.run(operands[0], operands[1], Address(), operands[2], optional_operand(operands, scratch));
    if (!l.bias) return;
    const float* dy = pointer<const float>(operands[0]);
    float* db = pointer<float>(operands[3]);
    parallel_for(threads, divide_up(l.outer, block), divide_up(16, l.rows), [=](int64_t begin, int64_t end) {
      for (int64_t c = begin * block; c < std::min(end * block, l.outer); c += block)
        sums(dy + c, l.rows, l.outer, std::min(block, l.outer - c), accumulate, db + c);
    });
  });
}

}  // namespace

int64_t linear_workspace(const ops::Op& op, Tensors tensors, int threads) {
  switch (op.kind) {
    case ops::Kind::linear: {
      const Linear l = forward_of(op, tensors);
      return by_dots(l) ? 0 : forward_products(l, threads).scratch_bytes();
    }
    case ops::Kind::linear_backward_input:
      return backward_input_products(backward_input_of(op, tensors), op.in.size() == 3, threads).scratch_bytes();
    default: return backward_weight_products(backward_weight_of(op, tensors), op.accumulate, threads).scratch_bytes();
  }
}

std::unique_ptr<Kernel> make_linear(const ops::Op& op, Tensors tensors, int threads) {
  switch (op.kind) {
    case ops::Kind::linear: return make_forward(op, tensors, threads);
    case ops::Kind::linear_backward_input: return make_backward_input(op, tensors, threads);
    default: return make_backward_weight(op, tensors, threads);
  }
}

}  // namespace strata::device::cpu
#endif
