#pragma once
// Backward rules: one per operation kind. A reverse walk over a block's forward operations calls `backward` for each; the
// rule appends the operations that turn gradients of its outputs into gradients of its inputs.

#include <unordered_map>
#include <vector>

#include "ops/op.h"

namespace strata::ops {

/// What a reverse walk has gathered so far. Tensors of the backward are added to the same graph as the forward's.
class ReverseWalk {
 public:
  /// `input_wanted`: whether the unit's input needs a gradient (an embedding's tokens do not).
  ReverseWalk(Graph& graph, bool input_wanted);

  /// True if some parameter or wanted input lies behind this tensor.
  bool wanted(int tensor) const { return wanted_[static_cast<size_t>(tensor)]; }
  /// Gradient gathered so far for a tensor, or -1.
  int of(int tensor) const;
  /// States that `gradient` is now all that is known of d loss / d tensor.
  void set(int tensor, int gradient) { gradients_[tensor] = gradient; }
  /// A new temporary of the tensor's shape and type, to write its gradient to.
  int fresh(int tensor);
  /// Another contribution to a tensor's gradient: becomes the gradient, or is added to the one before.
  void contribute(int tensor, int gradient);
  /// Where a parameter's gradient goes. Ops that write it must carry `accumulate = accumulates(parameter)`.
  int of_parameter(int parameter);
  /// False for the first writer of a parameter's gradient within the walk, true after.
  bool accumulates(int parameter);
  void emit(Op op) { ops_.push_back(std::move(op)); }
  int step_inputs();

  Graph& graph() { return graph_; }
  std::vector<Op> take() { return std::move(ops_); }

 private:
  Graph& graph_;
  std::vector<bool> wanted_;
  std::unordered_map<int, int> gradients_, parameter_gradients_;
  std::unordered_map<int, bool> written_;
  std::vector<Op> ops_;
};

/// Appends the backward of one forward operation to the walk.
void backward(const Op& op, ReverseWalk& walk);

/// The whole reverse walk over `graph.ops` (forward only). `output_gradient` is the tensor that holds d loss / d output, or
/// -1 for a unit that ends in a loss. Returns the backward operations; the gradient of the tensor with role `input` (if
/// wanted) gets role `input_gradient`.
std::vector<Op> reverse(Graph& graph, int output, int output_gradient, int input, bool input_wanted);

}  // namespace strata::ops
