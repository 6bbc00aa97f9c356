// linear, linear_backward_input, linear_backward_weight: matrix products by oneDNN on plain row-major operands, and
// kernels of our own for a handful of rows (generation) and for the bias gradient.
//
// Operands are never reordered. Products are cut where that was measured to help: results into ranges of columns, a long
// sum of linear_backward_input into pieces that are added in order. A type that the
// library does not multiply on this CPU (fp16; bf16 without AVX-512 BF16) goes through fp32 in the workspace.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/allocations.h"
#include "device/cpu/gemm_vectors.h"
#include "device/cpu/kernels.h"
#include "device/cpu/onednn.h"
#include "device/cpu/parallel.h"

namespace strata::device::cpu {

namespace {

using onednn::Matrix;

/// Up to this many rows reading w once counts for more than anything else; the library turns each block of it first.
constexpr int64_t few_rows = 4;
/// A sum over more than this many rows of w misses the translation look-aside buffer: its rows lie on a page each.
constexpr int64_t longest_sum = 1152;
/// Columns of a result that are computed at a time; of a narrower one in 16 bits, half of them.
constexpr int64_t widest_result = 1536;

/// Products that together make one operation, planned and, for running, built.
class Products {
 public:
  explicit Products(int threads) : threads_(threads) {}

  /// Adds c (+)= a b (+ bias), where a, b and c lie at these offsets (elements) in the operands of run(); the bias begins
  /// where c's first row does.
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
    calls_.push_back({plan, from_a * size_of(a.dtype), from_b * size_of(b.dtype), to_c * size_of(c.dtype),
                      bias ? to_c * size_of(*bias) : 0});
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
      built_[call.plan].run(a + call.from_a, b + call.from_b, bias + call.from_bias, c + call.to_c, scratch, bias_);
  }

 private:
  struct Shape {
    int64_t rows, inner, columns;
    bool accumulate;
    bool operator==(const Shape&) const = default;
  };
  struct Call {
    size_t plan;
    int64_t from_a, from_b, to_c, from_bias;
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
  DType compute = DType::f32;  ///< of x, w, the bias, y and their gradients but those of w and the bias, which are f32
  bool bias = false;
};

Matrix row_major(int64_t rows, int64_t columns, int64_t stride, DType dtype) {
  return {rows, columns, stride, 1, dtype};
}

/// The type in which a product is computed.
DType product_type(DType compute) { return onednn::multiplies(compute) ? compute : DType::f32; }

Linear forward_of(const ops::Op& op, Tensors tensors) {
  check_operands(op, 2, 3, 1, 1);
  const ops::Tensor &x = input(op, tensors, 0), &w = input(op, tensors, 1), &y = output(op, tensors, 0);
  const Rows rx = rows_of(x), rw = rows_of(w), ry = rows_of(y);
  STRATA_CHECK(rx.width == rw.width && ry == (Rows{rx.count, rw.count}), "{} = {} {}^T", y.name, x.name, w.name);
  const bool bias = op.in.size() == 3;
  if (bias) STRATA_CHECK(input(op, tensors, 2).shape.elements() == rw.count, "{}", input(op, tensors, 2).name);
  return {rx.count, rw.width, rw.count, check_floats(op, tensors), bias};
}

Linear backward_input_of(const ops::Op& op, Tensors tensors) {
  check_operands(op, 2, 3, 1, 1);
  const ops::Tensor &dy = input(op, tensors, 0), &w = input(op, tensors, 1), &dx = output(op, tensors, 0);
  const Rows rdy = rows_of(dy), rw = rows_of(w), rdx = rows_of(dx);
  STRATA_CHECK(rdy.width == rw.count && rdx == (Rows{rdy.count, rw.width}), "{} = {} {}", dx.name, dy.name, w.name);
  if (op.in.size() == 3) STRATA_CHECK(rows_of(input(op, tensors, 2)) == rdx, "{}", input(op, tensors, 2).name);
  return {rdx.count, rw.width, rw.count, check_floats(op, tensors), false};
}

Linear backward_weight_of(const ops::Op& op, Tensors tensors) {
  check_operands(op, 2, 2, 1, 2);
  const ops::Tensor &dy = input(op, tensors, 0), &x = input(op, tensors, 1), &dw = output(op, tensors, 0);
  const Rows rdy = rows_of(dy), rx = rows_of(x), rdw = rows_of(dw);
  STRATA_CHECK(rdy.count == rx.count && rdw == (Rows{rdy.width, rx.width}), "{} = {}^T {}", dw.name, dy.name, x.name);
  const bool bias = op.out.size() == 2;
  if (bias) STRATA_CHECK(output(op, tensors, 1).shape.elements() == rdy.width, "{}", output(op, tensors, 1).name);
  return {rx.count, rx.width, rdy.width, check_floats(op, tensors), bias};
}

bool by_dots(const Linear& l) { return l.rows <= few_rows; }

/// Ranges of the columns of a result.
std::vector<std::pair<int64_t, int64_t>> column_ranges(int64_t columns, DType type) {
  const bool halve = type != DType::f32 && columns > 512 && columns <= widest_result;
  return pieces(columns, halve ? round_up(divide_up(columns, 2), 64) : widest_result);
}

/// y = x w^T + b
Products forward_products(const Linear& l, int threads) {
  const DType type = product_type(l.compute);
  Products products(threads);
  for (const auto& [begin, end] : column_ranges(l.outer, type))
    products.add(row_major(l.rows, l.inner, l.inner, type), row_major(end - begin, l.inner, l.inner, type).transposed(),
                 row_major(l.rows, end - begin, l.outer, type), l.bias ? std::optional(type) : std::nullopt, false, 0,
                 begin * l.inner, begin);
  return products;
}

/// dx (+)= dy w: in ranges of columns, or its sum in pieces.
Products backward_input_products(const Linear& l, bool add, int threads) {
  const DType type = product_type(l.compute);
  Products products(threads);
  const auto part = [&](int64_t from, int64_t to, int64_t left, int64_t right, bool sum) {
    products.add(row_major(l.rows, to - from, l.outer, type), row_major(to - from, right - left, l.inner, type),
                 row_major(l.rows, right - left, l.inner, type), std::nullopt, sum, from, from * l.inner + left, left);
  };
  // A result that is stored in fewer bits must not be rounded between pieces of its sum.
  if (l.inner > widest_result || type != DType::f32)
    for (const auto& [left, right] : column_ranges(l.inner, type)) part(0, l.outer, left, right, add);
  else
    for (const auto& [from, to] : pieces(l.outer, longest_sum)) part(from, to, 0, l.inner, add || from > 0);
  return products;
}

/// dw (+)= dy^T x
Products backward_weight_products(const Linear& l, bool accumulate, int threads) {
  const DType type = product_type(l.compute);
  Products products(threads);
  for (const auto& [begin, end] : column_ranges(l.inner, type))
    products.add(row_major(l.rows, l.outer, l.outer, type).transposed(), row_major(l.rows, end - begin, l.inner, type),
                 row_major(l.outer, end - begin, l.inner, DType::f32), std::nullopt, accumulate, 0, begin, begin);
  return products;
}

/// The way through fp32: operands of another type are widened into the workspace before a product, its result is
/// narrowed after it. The library's own scratch lies behind them.
class Detour {
 public:
  Detour(DType compute, int threads) : compute_(compute), threads_(threads) {}

  bool taken() const { return product_type(compute_) != compute_; }
  void widens(size_t operand, int64_t elements) { parts_.push_back(take(operand, elements)); }
  void narrows(size_t operand, int64_t elements) { result_ = take(operand, elements); }
  int64_t bytes() const { return taken() ? bytes_ : 0; }

  /// Where the product finds an operand, or leaves its result.
  Address place(size_t operand, Operands operands, Address workspace) const {
    if (!taken()) return operands[operand];
    for (const Part& part : parts_)
      if (part.operand == operand) return workspace + part.offset;
    return result_.elements > 0 && result_.operand == operand ? workspace + result_.offset : operands[operand];
  }
  void enter(Operands operands, Address workspace) const {
    if (!taken()) return;
    const Widen convert = widen(compute_);
    for (const Part& part : parts_)
      parallel_for(threads_, part.elements, 1 << 14, [&](int64_t begin, int64_t end) {
        convert(pointer<const void>(operands[part.operand]), pointer<float>(workspace + part.offset), begin, end);
      });
  }
  /// `addend`: null, or what joins the result.
  void leave(Operands operands, Address workspace, Address addend) const {
    if (!taken() || result_.elements == 0) return;
    const Narrow convert = narrow(compute_);
    parallel_for(threads_, result_.elements, 1 << 14, [&](int64_t begin, int64_t end) {
      convert(pointer<const float>(workspace + result_.offset), pointer<const void>(addend),
              pointer<void>(operands[result_.operand]), begin, end);
    });
  }

 private:
  struct Part {
    size_t operand = 0;
    int64_t elements = 0, offset = 0;
  };
  Part take(size_t operand, int64_t elements) {
    const Part part{operand, elements, bytes_};
    bytes_ += round_up(elements * size_of(DType::f32), alignment);
    return part;
  }
  DType compute_;
  int threads_;
  std::vector<Part> parts_;
  Part result_;
  int64_t bytes_ = 0;
};

Detour forward_detour(const Linear& l, int threads) {
  Detour detour(l.compute, threads);
  detour.widens(0, l.rows * l.inner);
  detour.widens(1, l.outer * l.inner);
  if (l.bias) detour.widens(2, l.outer);
  detour.narrows(l.bias ? 3 : 2, l.rows * l.outer);
  return detour;
}

Detour backward_input_detour(const Linear& l, bool add, int threads) {
  Detour detour(l.compute, threads);
  detour.widens(0, l.rows * l.outer);
  detour.widens(1, l.outer * l.inner);
  detour.narrows(add ? 3 : 2, l.rows * l.inner);
  return detour;
}

Detour backward_weight_detour(const Linear& l, int threads) {
  Detour detour(l.compute, threads);
  detour.widens(0, l.rows * l.outer);
  detour.widens(1, l.rows * l.inner);
  return detour;
}

/// Operand number `index`, or none.
Address optional_operand(Operands operands, size_t index) {
  return index < operands.size() ? operands[index] : Address();
}

/// A kernel's products, the way there, and the workspace that both share.
struct Plan {
  Products products;
  Detour detour;
  int64_t workspace_bytes() const { return detour.bytes() + products.scratch_bytes(); }
};

Plan forward_plan(const Linear& l, int threads) { return {forward_products(l, threads), forward_detour(l, threads)}; }
Plan backward_input_plan(const Linear& l, bool add, int threads) {
  // On the way through fp32 the addend joins when the result is rounded.
  const bool in_product = add && product_type(l.compute) == l.compute;
  return {backward_input_products(l, in_product, threads), backward_input_detour(l, add, threads)};
}
Plan backward_weight_plan(const Linear& l, bool accumulate, int threads) {
  return {backward_weight_products(l, accumulate, threads), backward_weight_detour(l, threads)};
}

void prepare(const ops::Op& op, Tensors tensors, Plan& plan) {
  const int64_t bytes = plan.workspace_bytes();
  STRATA_CHECK(bytes == 0 || (op.workspace >= 0 && tensors[static_cast<size_t>(op.workspace)].bytes() >= bytes),
               "{} wants a workspace of {} bytes", ops::name_of(op.kind), bytes);
  plan.products.build();
}

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  const Linear l = forward_of(op, tensors);
  const size_t y = op.in.size();
  if (by_dots(l)) {
    const LinearFewRows function = linear_few_rows(l.compute);
    return make_kernel([=](Operands operands, const Launch&) {
      // A block's columns are a multiple of four, so that an element's neighbours do not depend on threads.
      parallel_for(threads, divide_up(l.outer, 4), divide_up(4096, l.inner), [=](int64_t begin, int64_t end) {
        function(pointer<const void>(operands[0]), pointer<const void>(operands[1]),
                 l.bias ? pointer<const void>(operands[2]) : nullptr, pointer<void>(operands[y]), l.rows, l.inner,
                 l.outer, 4 * begin, std::min(4 * end, l.outer));
      });
    });
  }
  Plan plan = forward_plan(l, threads);
  prepare(op, tensors, plan);
  return make_kernel([=, plan = std::move(plan)](Operands operands, const Launch&) mutable {
    const Address workspace = optional_operand(operands, y + 1);
    const auto at = [&](size_t operand) { return plan.detour.place(operand, operands, workspace); };
    plan.detour.enter(operands, workspace);
    plan.products.run(at(0), at(1), l.bias ? at(2) : Address(), at(y), workspace + plan.detour.bytes());
    plan.detour.leave(operands, workspace, Address());
  });
}

std::unique_ptr<Kernel> make_backward_input(const ops::Op& op, Tensors tensors, int threads) {
  const Linear l = backward_input_of(op, tensors);
  const bool add = op.in.size() == 3;
  const size_t dx = op.in.size();
  const int64_t bytes = output(op, tensors, 0).bytes();
  Plan plan = backward_input_plan(l, add, threads);
  prepare(op, tensors, plan);
  return make_kernel([=, plan = std::move(plan)](Operands operands, const Launch&) mutable {
    const Address workspace = optional_operand(operands, dx + 1);
    const auto at = [&](size_t operand) { return plan.detour.place(operand, operands, workspace); };
    if (add && !plan.detour.taken() && operands[2] != operands[dx]) {
      const char* from = pointer<const char>(operands[2]);
      char* to = pointer<char>(operands[dx]);
      parallel_for(threads, bytes, 1 << 16, [=](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
    }
    plan.detour.enter(operands, workspace);
    plan.products.run(at(0), at(1), Address(), at(dx), workspace + plan.detour.bytes());
    plan.detour.leave(operands, workspace, add ? operands[2] : Address());
  });
}

std::unique_ptr<Kernel> make_backward_weight(const ops::Op& op, Tensors tensors, int threads) {
  const Linear l = backward_weight_of(op, tensors);
  const bool accumulate = op.accumulate;
  const size_t scratch = 2 + op.out.size();
  Plan plan = backward_weight_plan(l, accumulate, threads);
  prepare(op, tensors, plan);
  const ColumnSums sums = column_sums(l.compute);
  constexpr int64_t block = sum_columns;
  return make_kernel([=, plan = std::move(plan)](Operands operands, const Launch&) mutable {
    const Address workspace = optional_operand(operands, scratch);
    const auto at = [&](size_t operand) { return plan.detour.place(operand, operands, workspace); };
    plan.detour.enter(operands, workspace);
    plan.products.run(at(0), at(1), Address(), operands[2], workspace + plan.detour.bytes());
    if (!l.bias) return;
    float* db = pointer<float>(operands[3]);
    parallel_for(threads, divide_up(l.outer, block), divide_up(16, l.rows), [=](int64_t begin, int64_t end) {
      for (int64_t c = begin * block; c < std::min(end * block, l.outer); c += block)
        sums(pointer<const void>(operands[0] + c * size_of(l.compute)), l.rows, l.outer, std::min(block, l.outer - c),
             accumulate, db + c);
    });
  });
}

}  // namespace

int64_t linear_workspace(const ops::Op& op, Tensors tensors, int threads) {
  switch (op.kind) {
    case ops::Kind::linear: {
      const Linear l = forward_of(op, tensors);
      return by_dots(l) ? 0 : forward_plan(l, threads).workspace_bytes();
    }
    case ops::Kind::linear_backward_input:
      return backward_input_plan(backward_input_of(op, tensors), op.in.size() == 3, threads).workspace_bytes();
    default: return backward_weight_plan(backward_weight_of(op, tensors), op.accumulate, threads).workspace_bytes();
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
