#pragma once
// How attention is cut into tiles, as formulas: what its kernels compute with and what its workspace follows from.

#include <algorithm>
#include <cstdint>

#include "core/types.h"

namespace strata::device {

/// Keys of a tile, and queries of a tile in backward. Results depend on it, and on nothing else that is chosen here.
inline constexpr int64_t attention_tile = 64;
/// Rows of tiles are padded to a multiple of this many floats, at least one vector.
inline constexpr int64_t attention_pad = 16;
/// Queries that are computed together.
inline constexpr int64_t attention_rows = 4;

/// Queries of a task of forward: many, so that a packed tile of keys serves many, while they and their outputs fit in a
/// second-level cache and every thread finds tasks. `groups` = sequences x KV heads, `group` = query heads a KV head,
/// `queries` = of a sequence.
inline int64_t attention_queries(int64_t groups, int64_t group, int64_t queries, int64_t head_dim, int threads) {
  const int64_t fit = 65536 / (group * round_up(head_dim, attention_pad));
  int64_t rows = round_up(std::min(std::clamp<int64_t>(fit, 16, 1024), queries), attention_rows);
  while (rows >= 32 && groups * divide_up(queries, rows) < int64_t{4} * threads)
    rows = round_up(rows / 2, attention_rows);
  return rows;
}

/// One thread's tiles in forward, in floats: keys transposed, values, queries, outputs, scores, running maxima and sums.
struct AttentionForwardTiles {
  int64_t width, keys, values, queries, outputs, scores, maxima, sums, total;
  AttentionForwardTiles(int64_t head_dim, int64_t group, int64_t rows) : width(round_up(head_dim, attention_pad)) {
    const int64_t all = group * round_up(rows, attention_rows);
    keys = 0;
    values = keys + width * attention_tile;
    queries = values + attention_tile * width;
    outputs = queries + all * width;
    scores = outputs + all * width;
    maxima = scores + attention_rows * attention_tile;
    sums = maxima + round_up(all, attention_pad);
    total = sums + all * attention_pad;
  }
};

/// One thread's memory in backward, in floats: a tile's keys and values transposed, keys, gradients of keys and values;
/// a head's queries, gradients of outputs and of queries, and each query's sum of output times gradient; probabilities
/// and gradients of scores of two tiles.
struct AttentionBackwardTiles {
  int64_t width, keys_turned, values_turned, keys, dkeys, dvalues, queries, doutputs, dqueries, sums, probabilities,
      dscores, total;
  AttentionBackwardTiles(int64_t head_dim, int64_t sequence) : width(round_up(head_dim, attention_pad)) {
    const int64_t tile = attention_tile * width, square = attention_tile * attention_tile;
    const int64_t rows = round_up(sequence, attention_rows), head = rows * width;
    keys_turned = 0;
    values_turned = keys_turned + tile;
    keys = values_turned + tile;
    dkeys = keys + tile;
    dvalues = dkeys + tile;
    queries = dvalues + tile;
    doutputs = queries + head;
    dqueries = doutputs + head;
    sums = dqueries + head;
    probabilities = sums + round_up(rows, attention_pad);
    dscores = probabilities + square;
    total = dscores + square;
  }
};

}  // namespace strata::device
