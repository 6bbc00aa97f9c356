#include "core/error.h"
#include "device/attention_tiles.h"
#include "device/workspace.h"

namespace strata::device {

int64_t attention_workspace(const ops::Op& op, std::span<const ops::Tensor> tensors, int threads) {
  const auto& a = op.as<ops::AttentionAttributes>();
  const bool backward = op.kind == ops::Kind::attention_backward, cached = op.kind == ops::Kind::cached_attention;
  const ops::Tensor& qkv = tensors[static_cast<size_t>(op.in[backward ? 1 : 0])];
  const int64_t tokens = qkv.shape.elements() / ((a.heads + 2 * a.kv_heads) * a.head_dim);
  const int64_t queries = cached ? tokens : a.sequence, groups = tokens / queries * a.kv_heads;
  if (backward)
    return std::min<int64_t>(threads, groups) * AttentionBackwardTiles(a.head_dim, a.sequence).total *
           size_of(DType::f32);
  const int64_t group = a.heads / a.kv_heads, rows = attention_queries(groups, group, queries, a.head_dim, threads);
  const int64_t workers = std::min<int64_t>(threads, groups * divide_up(queries, rows));
  return workers * AttentionForwardTiles(a.head_dim, group, rows).total * size_of(DType::f32);
}

}  // namespace strata::device
