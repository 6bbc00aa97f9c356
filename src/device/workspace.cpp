#include "device/workspace.h"

#include <algorithm>

namespace strata::device {
namespace {

/// `vectors` sums as wide as a row for each chunk of rows.
int64_t norm_backward_workspace(const ops::Tensor& dy, int64_t vectors) {
  const int64_t width = dy.shape[dy.shape.rank - 1], rows = dy.shape.elements() / width;
  return divide_up(rows, norm_chunk_rows) * vectors * width * size_of(DType::f32);
}

/// For each row of the larger table the first token that adds to it, for each token the next.
int64_t embedding_backward_workspace(const ops::Op& op, std::span<const ops::Tensor> tensors) {
  int64_t rows = 0;
  for (int out : op.out) rows = std::max(rows, tensors[static_cast<size_t>(out)].shape[0]);
  return (rows + tensors[static_cast<size_t>(op.in[1])].shape.elements()) * size_of(DType::i32);
}

}  // namespace

int64_t own_workspace(const ops::Op& op, std::span<const ops::Tensor> tensors, int threads) {
  using ops::Kind;
  switch (op.kind) {
    case Kind::attention:
    case Kind::cached_attention:
    case Kind::attention_backward: return attention_workspace(op, tensors, threads);
    case Kind::embedding_backward: return embedding_backward_workspace(op, tensors);
    case Kind::layer_norm_backward: return norm_backward_workspace(tensors[static_cast<size_t>(op.in[0])], 2);
    case Kind::rms_norm_backward: return norm_backward_workspace(tensors[static_cast<size_t>(op.in[0])], 1);
    // One loss a token, in double, before they are summed in order.
    case Kind::cross_entropy: return tensors[static_cast<size_t>(op.in[1])].shape.elements() * size_of(DType::f64);
    default: return 0;
  }
}

}  // namespace strata::device
