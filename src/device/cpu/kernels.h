#pragma once
// The CPU's kernels, one factory a group of operation kinds; cpu.cpp maps kinds to them. A factory checks shapes and
// types (STRATA_CHECK: a lowering that breaks the contract of ops/op.h is a bug) and returns a kernel that allocates
// nothing when run. Results do not depend on `threads` unless a factory says so.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/error.h"
#include "device/cpu/parallel.h"
#include "device/device.h"
#include "ops/op.h"

namespace strata::device::cpu {

using Tensors = std::span<const ops::Tensor>;
using Operands = std::span<const Address>;

// gemm.cpp: linear, linear_backward_input, linear_backward_weight. Bits may depend on `threads`.
std::unique_ptr<Kernel> make_linear(const ops::Op& op, Tensors tensors, int threads);
int64_t linear_workspace(const ops::Op& op, Tensors tensors, int threads);

// attention.cpp: attention, cached_attention, attention_backward (workspace: device/workspace.h).
std::unique_ptr<Kernel> make_attention(const ops::Op& op, Tensors tensors, int threads);

// Memory-bound kinds; workspace of all: own_workspace in device/workspace.h.
std::unique_ptr<Kernel> make_embedding(const ops::Op& op, Tensors tensors, int threads);  // and backward
std::unique_ptr<Kernel> make_norm(const ops::Op& op, Tensors tensors, int threads);       // layer and rms, and backward
std::unique_ptr<Kernel> make_rotary(const ops::Op& op, Tensors tensors, int threads);
std::unique_ptr<Kernel> make_activation(const ops::Op& op, Tensors tensors, int threads);  // gelu, swiglu, and backward
std::unique_ptr<Kernel> make_elementwise(const ops::Op& op, Tensors tensors, int threads);    // add, dropout, fill_zero
std::unique_ptr<Kernel> make_cross_entropy(const ops::Op& op, Tensors tensors, int threads);  // and backward
std::unique_ptr<Kernel> make_grad_norm(const ops::Op& op, Tensors tensors, int threads);      // grad_norm, clip
std::unique_ptr<Kernel> make_adamw(const ops::Op& op, Tensors tensors, int threads);

/// The memory behind an address of this device; only kernels may look.
template <typename T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address.value());
}

/// Tensor behind the op's i-th input or output.
inline const ops::Tensor& input(const ops::Op& op, Tensors tensors, size_t i) {
  STRATA_CHECK(i < op.in.size(), "{}: input {} is missing", ops::name_of(op.kind), i);
  return tensors[static_cast<size_t>(op.in[i])];
}
inline const ops::Tensor& output(const ops::Op& op, Tensors tensors, size_t i) {
  STRATA_CHECK(i < op.out.size(), "{}: output {} is missing", ops::name_of(op.kind), i);
  return tensors[static_cast<size_t>(op.out[i])];
}

/// A tensor as rows: the last axis, and all others together.
struct Rows {
  int64_t count = 0, width = 0;
  bool operator==(const Rows&) const = default;
};
inline Rows rows_of(const ops::Tensor& tensor) {
  const ops::Shape& shape = tensor.shape;
  STRATA_CHECK(shape.rank >= 1 && shape.elements() > 0, "{} has no elements", tensor.name);
  return {shape.elements() / shape[shape.rank - 1], shape[shape.rank - 1]};
}

/// Checks the types of ops/op.h: activations, their gradients and parameters of one compute type, which is returned;
/// statistics, tables of angles, gradients of parameters and the optimizer's values f32; losses f64.
DType check_floats(const ops::Op& op, Tensors tensors);

/// body(begin, end) over elements, or over rows, with more than one thread where each gets enough to pay. Cuts between
/// elements lie where cache lines begin.
template <typename Body>
void for_elements(int threads, int64_t count, const Body& body) {
  constexpr int64_t piece = 1024;
  parallel_for(threads, divide_up(count, piece), 4,
               [&](int64_t begin, int64_t end) { body(begin * piece, std::min(end * piece, count)); });
}
template <typename Body>
void for_rows(int threads, const Rows& rows, const Body& body) {
  parallel_for(threads, rows.count, divide_up(4096, rows.width), body);
}

/// Counts of operands, optional ones included.
void check_operands(const ops::Op& op, size_t least_in, size_t most_in, size_t least_out, size_t most_out);

/// Which rows of a generating block are real, and where in the sequence they stand.
struct Positions {
  int64_t first = 0, count = 0;
};
/// Throws a run error when they do not fit in `rows` or run past the `limit` positions that a table has.
Positions new_positions(const ops::StepInputs& inputs, int64_t rows, int64_t limit);

/// A kernel made of a callable (operands, launch) that owns all it needs.
template <typename Run>
std::unique_ptr<Kernel> make_kernel(Run run) {
  class FunctionKernel final : public Kernel {
   public:
    explicit FunctionKernel(Run f) : run_(std::move(f)) {}
    void run(Operands operands, const Launch& launch) override { run_(operands, launch); }

   private:
    Run run_;
  };
  return std::make_unique<FunctionKernel>(std::move(run));
}

}  // namespace strata::device::cpu
