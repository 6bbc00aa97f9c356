#pragma once
// What one task of attention works on, and the functions that do it, for the instruction set at hand.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace strata::device::cpu {

inline constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;

/// Rows of a matrix in memory, in f32, bf16 or f16; `stride` in elements. Void is void or const void.
template <typename Void>
struct TypedRows {
  Void* data = nullptr;
  DType type = DType::f32;
  int64_t stride = 0;

  /// From a row and column on.
  TypedRows at(int64_t row, int64_t column = 0) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return {static_cast<Byte*>(data) + (row * stride + column) * size_of(type), type, stride};
  }
};
using ReadRows = TypedRows<const void>;
using WriteRows = TypedRows<void>;

/// First position that the query at `position` sees; `starts` as the operation has them, or null. What a wrong table
/// says is bounded here, so that nothing outside of the sequence is read.
inline int64_t first_seen(const int32_t* starts, int64_t position) {
  return starts == nullptr ? 0 : std::clamp<int64_t>(starts[position], 0, position);
}

/// Consecutive queries of the `group` heads that share one KV head. Query r stands at `position` + r and sees the keys
/// up to there.
struct AttentionForwardTask {
  ReadRows q;     ///< first query, first head; further heads head_dim on
  ReadRows k, v;  ///< position 0
  WriteRows y;
  float* lse = nullptr;             ///< log-sum-exp of the scores, if wanted
  int64_t lse_stride = 0;           ///< from head to head
  const int32_t* starts = nullptr;  ///< of position 0, or null
  int64_t position = 0, rows = 0;
  int64_t tile_rows = 0;  ///< what the workspace is laid out for, at least `rows`
  int64_t group = 0, head_dim = 0;
  float scale = 0;
};
void attention_forward(const AttentionForwardTask& task, float* tiles);

/// Keys [begin, end) of one KV head of one sequence, and the query heads that share it. All rows from position 0.
struct AttentionBackwardTask {
  ReadRows q, k, v, dy, y;  ///< q, dy, y: first head; further heads head_dim on
  const float* lse = nullptr;
  int64_t lse_stride = 0;
  WriteRows dq, dk, dv;
  float* dq_parts = nullptr;  ///< this chunk's for the first head, instead of dq; further heads dq_parts_stride on
  int64_t dq_parts_stride = 0;
  const int32_t* starts = nullptr;
  int64_t begin = 0, end = 0;
  int64_t sequence = 0, chunks = 0, group = 0, head_dim = 0;
  float scale = 0;
};
void attention_gradients(const AttentionBackwardTask& task, float* tiles);

/// Queries [begin, end) of one head: dq = scale * sum of the chunks' parts, in their order.
struct AttentionSumTask {
  const float* parts = nullptr;
  WriteRows dq;  ///< position 0
  int64_t begin = 0, end = 0;
  int64_t sequence = 0, chunks = 0, head_dim = 0;
  float scale = 0;
};
void attention_sum(const AttentionSumTask& task);

}  // namespace strata::device::cpu
