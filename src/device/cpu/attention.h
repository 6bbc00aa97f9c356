#pragma once
// What one task of attention works on. Strides are in elements; a head's elements of a row are contiguous.

#include <cstdint>

namespace strata::device::cpu {

inline constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;

/// Consecutive queries of the `group` heads that share one KV head. Query r stands at `position` + r and sees the keys
/// up to there.
struct AttentionForwardTask {
  const float* q = nullptr;  ///< first query, first head; further heads head_dim on
  const float* k = nullptr;  ///< position 0
  const float* v = nullptr;
  float* y = nullptr;
  float* lse = nullptr;  ///< log-sum-exp of the scores, if wanted
  int64_t q_stride = 0, kv_stride = 0, y_stride = 0;
  int64_t lse_stride = 0;  ///< from head to head
  int64_t position = 0, rows = 0;
  int64_t tile_rows = 0;  ///< what the workspace is laid out for, at least `rows`
  int64_t group = 0, head_dim = 0;
  float scale = 0;
};

/// One KV head of one sequence and the query heads that share it.
struct AttentionBackwardTask {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* dy = nullptr;
  const float* y = nullptr;
  const float* lse = nullptr;
  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  int64_t stride = 0, y_stride = 0;
  int64_t lse_stride = 0;
  int64_t sequence = 0, group = 0, head_dim = 0;
  float scale = 0;
};

}  // namespace strata::device::cpu
