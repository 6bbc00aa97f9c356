#pragma once
// How attention is cut into tiles and tasks, as formulas: what its kernels compute with and what its workspace follows
// from.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/types.h"

namespace strata::device {

/// Keys of a tile, and queries of a tile in backward. Results depend on it.
inline constexpr int64_t attention_tile = 64;
/// Rows of tiles are padded to a multiple of this many floats, at least one vector.
inline constexpr int64_t attention_pad = 16;
/// Queries whose scores against a tile of keys are held at a time in forward: few, so that these, and what they read and
/// write, stay in a first-level cache beside the tile.
inline constexpr int64_t attention_block = 24;

/// Threads that take part in `tasks` tasks. All or one: the OpenMP runtime allocates when a team's size changes.
inline int64_t attention_workers(int threads, int64_t tasks) { return tasks > 1 ? threads : 1; }

/// Queries of a task of forward: many, so that a packed tile of keys serves many, while they and their outputs fit in a
/// second-level cache and every thread finds tasks. `groups` = sequences x KV heads, `group` = query heads a KV head,
/// `queries` = of a sequence.
inline int64_t attention_queries(int64_t groups, int64_t group, int64_t queries, int64_t head_dim, int threads) {
  const int64_t fit = 65536 / (group * round_up(head_dim, attention_pad));
  int64_t rows = round_up(std::min(std::clamp<int64_t>(fit, 16, 1024), queries), attention_block);
  while (threads > 1 && rows >= 2 * attention_block && groups * divide_up(queries, rows) < int64_t{4} * threads)
    rows = round_up(rows / 2, attention_block);
  return std::min(rows, queries);
}

/// One thread's tiles in forward, in floats: keys transposed, values, rows on their way to be transposed, queries,
/// outputs, scores, running maxima and sums.
struct AttentionForwardTiles {
  int64_t width, keys, values, staging, queries, outputs, scores, maxima, sums, total;
  AttentionForwardTiles(int64_t head_dim, int64_t group, int64_t rows) : width(round_up(head_dim, attention_pad)) {
    const int64_t all = group * rows, tile = attention_tile * width;
    keys = 0;
    values = keys + tile;
    staging = values + tile;
    queries = staging + tile;
    outputs = queries + all * width;
    scores = outputs + all * width;
    maxima = scores + attention_block * attention_tile;
    sums = maxima + round_up(all, attention_pad);
    total = sums + all * attention_pad;
  }
};

/// Backward is cut by keys as well where there are few heads, so that they occupy many threads: into chunks of about
/// equal work. Each makes the gradients of its keys and values, and what its keys add to the gradients of queries; the
/// latter are added in the order of chunks. The cut depends on the model and the sequence's length alone, so that results
/// do not depend on threads or batch.
inline constexpr int64_t attention_most_chunks = 4;
inline int64_t attention_chunks(int64_t sequence, int64_t kv_heads) {
  return std::clamp<int64_t>(std::min(sequence / 512, 8 / kv_heads), 1, attention_most_chunks);
}
/// First key of a chunk; the last chunk's is followed by the sequence's length. A key's work is the queries after it.
inline int64_t attention_chunk_begin(int64_t sequence, int64_t chunks, int64_t chunk) {
  if (chunk >= chunks) return sequence;
  // Of `sequence` keys the first x have the share 1 - (1 - x / sequence)^2 of the work.
  const double rest = std::sqrt(1 - static_cast<double>(chunk) / static_cast<double>(chunks));
  return static_cast<int64_t>(std::lround(static_cast<double>(sequence) * (1 - rest) / attention_tile)) *
         attention_tile;
}
/// Keys of the longest chunk.
inline int64_t attention_chunk_keys(int64_t sequence, int64_t chunks) {
  int64_t most = 0;
  for (int64_t c = 0; c < chunks; ++c)
    most = std::max(most, attention_chunk_begin(sequence, chunks, c + 1) - attention_chunk_begin(sequence, chunks, c));
  return most;
}

/// Gradients of queries, in floats, of one head of one sequence: a part for each chunk of keys, for the queries that see
/// any of it.
struct AttentionQueryGradients {
  int64_t width, chunks, total;
  int64_t part[attention_most_chunks] = {};  ///< where the chunk's first query lies
  AttentionQueryGradients(int64_t head_dim, int64_t sequence, int64_t chunk_count)
      : width(round_up(head_dim, attention_pad)), chunks(chunk_count), total(0) {
    for (int64_t c = 0; c < chunks; ++c) {
      part[c] = total;
      total += (sequence - attention_chunk_begin(sequence, chunks, c)) * width;
    }
  }
};

/// One thread's memory in backward, in floats: a tile's keys and values transposed, keys, rows on their way to be
/// transposed; a chunk's gradients of keys and values (a tile's if no other head adds to them); a head's queries,
/// gradients of outputs, of queries (if there is one chunk only), each query's sum of output times gradient and
/// log-sum-exp; probabilities and gradients of scores of two tiles.
struct AttentionBackwardTiles {
  int64_t width, keys_turned, values_turned, keys, staging, dkeys, dvalues, queries, doutputs, dqueries, sums, lse,
      probabilities, dscores, total;
  AttentionBackwardTiles(int64_t head_dim, int64_t group, int64_t sequence, int64_t chunks)
      : width(round_up(head_dim, attention_pad)) {
    const int64_t tile = attention_tile * width, square = attention_tile * attention_tile;
    const int64_t head = sequence * width;
    const int64_t accumulated = (group > 1 ? attention_chunk_keys(sequence, chunks) : attention_tile) * width;
    keys_turned = 0;
    values_turned = keys_turned + tile;
    keys = values_turned + tile;
    staging = keys + tile;
    dkeys = staging + tile;
    dvalues = dkeys + accumulated;
    queries = dvalues + accumulated;
    doutputs = queries + head;
    dqueries = doutputs + head;
    sums = dqueries + (chunks == 1 ? head : 0);
    lse = sums + round_up(sequence, attention_pad);
    probabilities = lse + round_up(sequence, attention_pad);
    dscores = probabilities + square;
    total = dscores + square;
  }
};

}  // namespace strata::device
