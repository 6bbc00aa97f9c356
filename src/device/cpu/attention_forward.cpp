// attention and cached_attention: one task of either. Keys are walked a tile at a time with a running maximum and sum
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
//
// Scores are kept in units of log2: queries are multiplied by scale * log2(e) when they are packed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "device/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

#if HWY_TARGET != HWY_SCALAR
/// The largest of each position within blocks of four lanes.
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> max_of_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return max_of_blocks(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    (void)d;
    return v;
  }
}
#endif

HWY_INLINE Vector largest(const float* scores, int64_t begin, int64_t end) {
  const Tag d;
  const int64_t n = lanes_of(d);
  auto most = hn::Load(d, scores + begin);
  for (int64_t i = begin + n; i < end; i += n) most = hn::Max(most, hn::Load(d, scores + i));
  return most;
}

/// The new maxima of `rows` (at most 4) rows of scores in [begin, end), and by how much what was summed before shrinks.
/// Limits are what to subtract: the maxima, but finite where nothing is seen yet.
HWY_INLINE void raise_maxima(const float* scores, int64_t rows, int64_t begin, int64_t end, float* maxima,
                             float* limits, float* shrink) {
  const auto lowest = std::numeric_limits<float>::lowest();
#if HWY_TARGET != HWY_SCALAR
  if (rows == 4) {
    const Tag d;
    const hn::RepartitionToWide<Tag> pairs;
    const auto m0 = largest(scores, begin, end), m1 = largest(scores + attention_tile, begin, end),
               m2 = largest(scores + 2 * attention_tile, begin, end),
               m3 = largest(scores + 3 * attention_tile, begin, end);
    // Four rows' maxima side by side, in each block of four lanes.
    const auto m01 = hn::Max(hn::InterleaveLower(d, m0, m1), hn::InterleaveUpper(d, m0, m1));
    const auto m23 = hn::Max(hn::InterleaveLower(d, m2, m3), hn::InterleaveUpper(d, m2, m3));
    const auto p01 = hn::BitCast(pairs, m01), p23 = hn::BitCast(pairs, m23);
    const auto m = hn::Max(hn::BitCast(d, hn::InterleaveLower(pairs, p01, p23)),
                           hn::BitCast(d, hn::InterleaveUpper(pairs, p01, p23)));
    const hn::FixedTag<float, 4> four;
    const auto before = hn::LoadU(four, maxima), now = hn::Max(before, max_of_blocks(d, m));
    const auto limit = hn::Max(now, hn::Set(four, lowest));
    hn::StoreU(now, four, maxima);
    hn::StoreU(limit, four, limits);
    hn::StoreU(exp2_of(four, hn::Sub(before, limit)), four, shrink);
    return;
  }
#endif
  const hn::CappedTag<float, 1> one;
  for (int64_t r = 0; r < rows; ++r) {
    const float most = hn::GetLane(hn::MaxOfLanes(Tag(), largest(scores + r * attention_tile, begin, end)));
    const auto before = hn::Set(one, maxima[r]), now = hn::Max(before, hn::Set(one, most));
    const auto limit = hn::Max(now, hn::Set(one, lowest));
    maxima[r] = hn::GetLane(now);
    limits[r] = hn::GetLane(limit);
    shrink[r] = hn::GetLane(exp2_of(one, hn::Sub(before, limit)));
  }
}

/// `rows` rows of scores in [begin, end), whole vectors, become probabilities relative to the running maxima. Updates
/// maxima and sums; sets the factors by which what was summed before shrinks.
void softmax_rows(float* scores, int64_t rows, int64_t begin, int64_t end, float* maxima, float* sums, float* shrink) {
  const Tag d;
  const int64_t n = lanes_of(d);
  float limits[attention_block];
  for (int64_t r = 0; r < rows; r += 4)
    raise_maxima(scores + r * attention_tile, std::min<int64_t>(4, rows - r), begin, end, maxima + r, limits + r,
                 shrink + r);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * attention_tile;
    const auto limit = hn::Set(d, limits[r]);
    auto sum = hn::Zero(d);
    for (int64_t i = begin; i < end; i += n) {
      const auto p = exp2_of(d, hn::Sub(hn::Load(d, row + i), limit));
      hn::Store(p, d, row + i);
      sum = hn::Add(sum, p);
    }
    float* all = sums + r * attention_pad;
    hn::Store(hn::MulAdd(hn::Load(d, all), hn::Set(d, shrink[r]), sum), d, all);
  }
}

/// One tile of keys for `rows` (at most attention_block) packed queries from `row` on, which all see keys `all` of it:
/// scores, probabilities, and their share of the output.
void forward_rows(const AttentionForwardTiles& t, float* tiles, int64_t row, int64_t rows, Seen all, int64_t head_dim,
                  Start start) {
  const int64_t n = lanes_of(Tag()), begin = all.low / n * n, end = round_up(all.high, n);
  float* scores = tiles + t.scores;
  float shrink[attention_block];
  product(tiles + t.queries + row * t.width, t.width, 1, tiles + t.keys + begin, attention_tile, head_dim, rows,
          (end - begin) / n, Start::zero, scores + begin, attention_tile);
  if (begin != all.low || end != all.high)
    for (int64_t r = 0; r < rows; ++r) mask_row(scores + r * attention_tile, all, begin, end, -infinity);
  softmax_rows(scores, rows, begin, end, tiles + t.maxima + row, tiles + t.sums + row * attention_pad, shrink);
  product(scores + all.low, attention_tile, 1, tiles + t.values + all.low * t.width, t.width, all.high - all.low, rows,
          t.width / n, start, tiles + t.outputs + row * t.width, t.width, shrink);
}

/// The same for rows that each see something else: products a few rows at a time, for the keys that any of these sees.
/// `finite`: the tile's values are; else one row at a time, as zeros must not meet them.
void forward_ragged(const AttentionForwardTiles& t, float* tiles, int64_t row, int64_t rows, const Seen* seen,
                    int64_t head_dim, bool finite, Start start) {
  const int64_t n = lanes_of(Tag()), step = finite ? ragged_rows : 1;
  float* scores = tiles + t.scores;
  float shrink[attention_block];
  const Seen all = join(seen, rows);
  if (all.none()) return;
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t now = std::min(step, rows - r);
    const Seen some = join(seen + r, now);
    if (some.none()) continue;
    const int64_t begin = some.low / n * n, end = round_up(some.high, n);
    product(tiles + t.queries + (row + r) * t.width, t.width, 1, tiles + t.keys + begin, attention_tile, head_dim, now,
            (end - begin) / n, Start::zero, scores + r * attention_tile + begin, attention_tile);
  }
  const int64_t begin = all.low / n * n, end = round_up(all.high, n);
  for (int64_t r = 0; r < rows; ++r) mask_row(scores + r * attention_tile, seen[r], begin, end, -infinity);
  softmax_rows(scores, rows, begin, end, tiles + t.maxima + row, tiles + t.sums + row * attention_pad, shrink);
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t now = std::min(step, rows - r);
    const Seen some = join(seen + r, now);
    if (some.none()) continue;
    product(scores + r * attention_tile + some.low, attention_tile, 1, tiles + t.values + some.low * t.width, t.width,
            some.high - some.low, now, t.width / n, start, tiles + t.outputs + (row + r) * t.width, t.width,
            shrink + r);
  }
}

/// Outputs, and statistics if wanted, of rows whose sums are complete.
void finish_rows(const AttentionForwardTiles& t, float* tiles, int64_t at, int64_t rows, int64_t head_dim, WriteRows y,
                 float* lse, int64_t lse_step) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = at + r;
    const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, tiles + t.sums + row * attention_pad)));
    put_rows(tiles + t.outputs + row * t.width, t.width, 1, head_dim, 1 / sum, y.at(r));
    if (lse != nullptr) lse[r * lse_step] = tiles[t.maxima + row] * ln_2 + std::log(sum);
  }
}

}  // namespace

void attention_forward_on(const AttentionForwardTask& task, float* tiles) {
  const int64_t h = task.head_dim;
  const AttentionForwardTiles t(h, task.group, task.tile_rows);
  // One query each of many heads see the same keys: rows of one product.
  const bool merged = task.rows == 1;
  const int64_t heads = merged ? 1 : task.group, rows = merged ? task.group : task.rows;
  const int64_t last = task.position + task.rows - 1;
  const auto position_of = [&](int64_t row) { return task.position + (merged ? 0 : row); };
  ReadRows queries = task.q;
  WriteRows outputs = task.y;
  if (merged) queries.stride = outputs.stride = h;
  const int64_t lse_step = merged ? task.lse_stride : 1;
  int64_t first = last;
  for (int64_t r = 0; r < task.rows; ++r) first = std::min(first, first_seen(task.starts, task.position + r));
  first = first / attention_tile * attention_tile;
  for (int64_t key = first; key <= last; key += attention_tile) {
    const int64_t keys = std::min(attention_tile, last + 1 - key), next = key + attention_tile;
    pack_turned(task.k.at(key), keys, h, tiles + t.staging, t.width, tiles + t.keys);
    pack_rows(task.v.at(key), keys, h, 1, tiles + t.values, t.width);
    const bool finite = merged || all_finite(tiles + t.values, keys * t.width);
    // From the first block with a query that may see this tile.
    const int64_t begin = merged ? 0 : std::max<int64_t>(0, key - task.position) / attention_block * attention_block;
    for (int64_t row = begin; row < rows; row += attention_block) {
      const int64_t now = std::min(attention_block, rows - row);
      if (key == first) {
        for (int64_t g = 0; g < heads; ++g) {
          const int64_t at = g * rows + row;
          pack_rows(queries.at(row, g * h), now, h, task.scale * log2_e, tiles + t.queries + at * t.width, t.width);
          std::fill_n(tiles + t.maxima + at, now, -infinity);
          std::fill_n(tiles + t.sums + at * attention_pad, now * attention_pad, 0.0f);
          if (task.starts != nullptr) std::fill_n(tiles + t.outputs + at * t.width, now * t.width, 0.0f);
        }
      }
      Seen seen[attention_block];
      bool alike = task.starts == nullptr && (merged || key + keys <= position_of(row) + 1);
      if (alike) {
        seen[0] = seen_of(0, position_of(row), key, keys);
      } else {
        alike = true;
        for (int64_t r = 0; r < now; ++r) {
          seen[r] = seen_of(first_seen(task.starts, position_of(row + r)), position_of(row + r), key, keys);
          alike = alike && seen[r] == seen[0];
        }
      }
      const bool done = position_of(row + now - 1) < next;
      const Start start = key == first && task.starts == nullptr ? Start::zero : Start::scaled_sum;
      for (int64_t g = 0; g < heads; ++g) {
        const int64_t at = g * rows + row;
        if (!alike)
          forward_ragged(t, tiles, at, now, seen, h, finite, start);
        else if (!seen[0].none())
          forward_rows(t, tiles, at, now, seen[0], h, start);
        if (!done) continue;
        float* lse = task.lse == nullptr ? nullptr : task.lse + g * task.lse_stride + row * lse_step;
        finish_rows(t, tiles, at, now, h, outputs.at(row, g * h), lse, lse_step);
      }
    }
  }
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(attention_forward_on);

void attention_forward(const AttentionForwardTask& task, float* tiles) {
  HWY_DYNAMIC_DISPATCH(attention_forward_on)(task, tiles);
}

}  // namespace strata::device::cpu
#endif
