#include "core/error.h"
#include "device/attention_tiles.h"
#include "device/workspace.h"

namespace strata::device {

int64_t attention_workspace(const ops::Op& op, std::span<const ops::Tensor> tensors, int threads) {
  const auto& a = op.as<ops::AttentionAttributes>();
  const bool backward = op.kind == ops::Kind::attention_backward, cached = op.kind == ops::Kind::cached_attention;
  const ops::Tensor& qkv = tensors[static_cast<size_t>(op.in[backward ? 1 : 0])];
  const int64_t tokens = qkv.shape.elements() / ((a.heads + 2 * a.kv_heads) * a.head_dim);
  const int64_t queries = cached ? tokens : a.sequence, sequences = tokens / queries, groups = sequences * a.kv_heads;
  const int64_t group = a.heads / a.kv_heads;
  int64_t floats = 0;
  if (backward) {
    const int64_t chunks = attention_chunks(a.sequence, a.kv_heads),
                  workers = attention_workers(threads, groups * chunks);
    floats = workers * AttentionBackwardTiles(a.head_dim, group, a.sequence, chunks).total;
    if (chunks > 1) floats += sequences * a.heads * AttentionQueryGradients(a.head_dim, a.sequence, chunks).total;
  } else {
    const int64_t rows = attention_queries(groups, group, queries, a.head_dim, threads);
    const int64_t workers = attention_workers(threads, groups * divide_up(queries, rows));
    floats = workers * AttentionForwardTiles(a.head_dim, group, rows).total;
  }
  return floats * size_of(DType::f32);
}

}  // namespace strata::device
