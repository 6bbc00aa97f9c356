// attention_backward: one task of it. Probabilities are made again from the saved log-sum-exp (Dao et al.,
// "FlashAttention", 2022), a tile of queries against a tile of keys at a time.
//
// Scores are kept in units of log2: queries are multiplied by scale * log2(e) when they are packed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "device/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {
namespace {

template <typename T>
void dots_typed(const T* a, const T* b, int64_t rows, int64_t stride_a, int64_t stride_b, int64_t width, float* sums) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    const T *from_a = a + r * stride_a, *from_b = b + r * stride_b;
    sums[r] = sum_vectors(d, width, [=](int64_t i, auto span) HWY_ATTR {
      return hn::Mul(load(d, from_a + i, span), load(d, from_b + i, span));
    });
  }
}

/// sums[row] = a[row] . b[row].
void row_dots(ReadRows a, ReadRows b, int64_t rows, int64_t width, float* sums) {
  switch (a.type) {
    case DType::f32:
      return dots_typed(static_cast<const float*>(a.data), static_cast<const float*>(b.data), rows, a.stride, b.stride,
                        width, sums);
    case DType::bf16:
      return dots_typed(static_cast<const Bfloat16*>(a.data), static_cast<const Bfloat16*>(b.data), rows, a.stride,
                        b.stride, width, sums);
    default:
      return dots_typed(static_cast<const Float16*>(a.data), static_cast<const Float16*>(b.data), rows, a.stride,
                        b.stride, width, sums);
  }
}

/// Scores become probabilities, their gradients become the scores' gradients (without the scale), in [begin, end).
HWY_INLINE void gradient_row(float* scores, float* gradients, int64_t begin, int64_t end, float lse, float sum) {
  const Tag d;
  const int64_t n = lanes_of(d);
  const auto offset = hn::Set(d, lse), mean = hn::Set(d, sum);
  for (int64_t i = begin; i < end; i += n) {
    const auto p = exp2_of(d, hn::Sub(hn::Load(d, scores + i), offset));
    hn::Store(p, d, scores + i);
    hn::Store(hn::Mul(p, hn::Sub(hn::Load(d, gradients + i), mean)), d, gradients + i);
  }
}

/// A tile of queries of one head against a tile of keys: adds to the gradients of keys, values and queries. `seen` for
/// each row, or null if each sees all keys. `finite`: the queries, gradients of outputs, and keys are. `start_...`: what
/// is added to.
void backward_tile(const AttentionBackwardTiles& t, float* tiles, float* dqueries, float* dkeys, float* dvalues,
                   int64_t head_dim, int64_t query, int64_t rows, int64_t keys, const Seen* seen, bool finite,
                   Start start_queries, Start start_keys) {
  const int64_t n = lanes_of(Tag()), width = t.width, columns = width / n;
  const float *queries = tiles + t.queries + query * width, *doutputs = tiles + t.doutputs + query * width;
  float *probabilities = tiles + t.probabilities, *dscores = tiles + t.dscores;
  // Rows that see all keys go together. Else a few at a time, with zeros for what only others of them see, unless these
  // zeros would meet NaN or infinity.
  const bool whole = seen == nullptr;
  const int64_t step = whole ? rows : finite ? ragged_rows : 1;
  Seen groups[attention_tile];
  if (whole) {
    groups[0] = {0, keys};
  } else {
    for (int64_t r = 0, g = 0; r < rows; r += step, ++g) {
      groups[g] = join(seen + r, std::min(step, rows - r));
      if (groups[g].none()) groups[g] = {};
    }
  }
  const auto scores = [&](const float* from, const float* turned, float* to) {
    for (int64_t r = 0, g = 0; r < rows; r += step, ++g) {
      const int64_t begin = groups[g].low / n * n, end = round_up(groups[g].high, n);
      product(from + r * width, width, 1, turned + begin, attention_tile, head_dim, std::min(step, rows - r),
              (end - begin) / n, Start::zero, to + r * attention_tile + begin, attention_tile);
    }
  };
  scores(queries, tiles + t.keys_turned, probabilities);
  scores(doutputs, tiles + t.values_turned, dscores);
  for (int64_t r = 0, g = 0; r < rows; r += step, ++g) {
    const int64_t begin = groups[g].low / n * n, end = round_up(groups[g].high, n);
    for (int64_t row = r; row < std::min(r + step, rows); ++row) {
      float *p = probabilities + row * attention_tile, *ds = dscores + row * attention_tile;
      gradient_row(p, ds, begin, end, tiles[t.lse + query + row], tiles[t.sums + query + row]);
      if (whole && end == keys) continue;
      mask_row(p, whole ? groups[0] : seen[row], 0, attention_tile, 0);
      mask_row(ds, whole ? groups[0] : seen[row], 0, attention_tile, 0);
    }
  }
  for (int64_t r = 0, g = 0; r < rows; r += step, ++g)
    product(dscores + r * attention_tile + groups[g].low, attention_tile, 1, tiles + t.keys + groups[g].low * width,
            width, groups[g].high - groups[g].low, std::min(step, rows - r), columns, start_queries,
            dqueries + r * width, width);
  const auto add = [&](int64_t key, int64_t count, int64_t from, int64_t to) {
    const int64_t at = from * attention_tile + key;
    product(probabilities + at, 1, attention_tile, doutputs + from * width, width, to - from, count, columns,
            start_keys, dvalues + key * width, width);
    product(dscores + at, 1, attention_tile, queries + from * width, width, to - from, count, columns, start_keys,
            dkeys + key * width, width);
  };
  if (whole) return add(0, keys, 0, rows);
  for (int64_t key = 0; key < keys; key += step) {
    const int64_t count = std::min(step, keys - key);
    // The queries that see any of these keys.
    const auto sees = [&](int64_t r) { return seen[r].low < key + count && key < seen[r].high; };
    int64_t from = 0, to = rows;
    while (from < to && !sees(from)) ++from;
    while (from < to && !sees(to - 1)) --to;
    if (from < to) add(key, count, from, to);
  }
}

}  // namespace

void attention_gradients_on(const AttentionBackwardTask& task, float* tiles) {
  const int64_t h = task.head_dim, length = task.sequence;
  const AttentionBackwardTiles t(h, task.group, length, task.chunks);
  const int64_t width = t.width;
  for (int64_t g = 0; g < task.group; ++g) {
    const ReadRows q = task.q.at(0, g * h), dy = task.dy.at(0, g * h), y = task.y.at(0, g * h);
    const float* lse = task.lse + g * task.lse_stride;
    float* dqueries = task.dq_parts == nullptr ? tiles + t.dqueries : task.dq_parts + g * task.dq_parts_stride;
    if (task.starts != nullptr) std::fill_n(dqueries, (length - task.begin) * width, 0.0f);
    bool queries_finite = true;
    for (int64_t key = task.begin; key < task.end; key += attention_tile) {
      const int64_t keys = std::min(attention_tile, task.end - key);
      pack_turned(task.k.at(key), keys, h, tiles + t.staging, width, tiles + t.keys_turned);
      pack_turned(task.v.at(key), keys, h, tiles + t.staging, width, tiles + t.values_turned);
      pack_rows(task.k.at(key), keys, h, 1, tiles + t.keys, width);
      const bool keys_finite = all_finite(tiles + t.keys, keys * width), last_head = g + 1 == task.group;
      const int64_t at = task.group > 1 ? (key - task.begin) * width : 0;
      float *dkeys = tiles + t.dkeys + at, *dvalues = tiles + t.dvalues + at;
      for (int64_t query = key; query < length; query += attention_tile) {
        const int64_t rows = std::min(attention_tile, length - query);
        const int64_t row = query - task.begin;
        if (key == task.begin) {
          float *packed = tiles + t.queries + row * width, *doutputs = tiles + t.doutputs + row * width;
          pack_rows(q.at(query), rows, h, task.scale * log2_e, packed, width);
          pack_rows(dy.at(query), rows, h, 1, doutputs, width);
          row_dots(dy.at(query), y.at(query), rows, h, tiles + t.sums + row);
          for (int64_t r = 0; r < rows; ++r) tiles[t.lse + row + r] = lse[query + r] * log2_e;
          queries_finite = queries_finite && all_finite(packed, rows * width) && all_finite(doutputs, rows * width);
        }
        Seen seen[attention_tile];
        bool whole = true, any = true;
        if (query == key || task.starts != nullptr) {
          any = false;
          for (int64_t r = 0; r < rows; ++r) {
            seen[r] = seen_of(first_seen(task.starts, query + r), query + r, key, keys);
            whole = whole && seen[r] == Seen{0, keys};
            any = any || !seen[r].none();
          }
        }
        // The first tile of keys begins the gradients of queries, that of queries (all of whom see a key each) those of
        // keys and values.
        if (any)
          backward_tile(t, tiles, dqueries + row * width, dkeys, dvalues, h, row, rows, keys, whole ? nullptr : seen,
                        keys_finite && queries_finite,
                        key == task.begin && task.starts == nullptr ? Start::zero : Start::sum,
                        query == key && g == 0 ? Start::zero : Start::sum);
      }
      if (!last_head) continue;
      // The packed queries carry scale * log2(e); the scale belongs there.
      put_rows(dkeys, width, keys, h, ln_2, task.dk.at(key));
      put_rows(dvalues, width, keys, h, 1, task.dv.at(key));
    }
    if (task.dq_parts == nullptr) put_rows(dqueries, width, length, h, task.scale, task.dq.at(0, g * h));
  }
}

void attention_sum_on(const AttentionSumTask& task) {
  const AttentionQueryGradients parts(task.head_dim, task.sequence, task.chunks);
  constexpr int64_t block = 16;
  const Tag d;
  const int64_t n = lanes_of(d);
  for (int64_t query = task.begin; query < task.end; query += block) {
    const int64_t rows = std::min(block, task.end - query);
    HWY_ALIGN float sums[block * attention_pad];
    for (int64_t column = 0; column < parts.width; column += attention_pad) {
      std::fill_n(sums, rows * attention_pad, 0.0f);
      for (int64_t c = 0; c < parts.chunks; ++c) {
        const int64_t begin = attention_chunk_begin(task.sequence, task.chunks, c);
        for (int64_t r = std::max<int64_t>(0, begin - query); r < rows; ++r) {
          const float* from = task.parts + parts.part[c] + (query + r - begin) * parts.width + column;
          for (int64_t i = 0; i < attention_pad; i += n) {
            float* sum = sums + r * attention_pad + i;
            hn::Store(hn::Add(hn::Load(d, sum), hn::Load(d, from + i)), d, sum);
          }
        }
      }
      put_rows(sums, attention_pad, rows, std::min(attention_pad, task.head_dim - column), task.scale,
               task.dq.at(query, column));
    }
  }
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(attention_gradients_on);
HWY_EXPORT(attention_sum_on);

void attention_gradients(const AttentionBackwardTask& task, float* tiles) {
  HWY_DYNAMIC_DISPATCH(attention_gradients_on)(task, tiles);
}

void attention_sum(const AttentionSumTask& task) { HWY_DYNAMIC_DISPATCH(attention_sum_on)(task); }

}  // namespace strata::device::cpu
#endif
