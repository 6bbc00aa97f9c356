// attention, cached_attention, attention_backward: exact causal attention that never holds more scores than a tile.
//
// Forward walks the keys a tile at a time with a running maximum and sum (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018); backward makes the probabilities again from the saved log-sum-exp (Dao et al.,
// "FlashAttention", 2022). A query's result depends on its keys and on tile borders at fixed positions, never on the
// batch, the sequence's length, the cut into tasks or the threads; generating gives the bits that training gives.
//
// Scores are kept in units of log2: queries are multiplied by scale * log2(e) when they are packed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/attention_tiles.h"
#include "device/cpu/attention.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"
#include "device/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

using Tag = hn::CappedTag<float, attention_pad>;
using Vector = hn::Vec<Tag>;

/// Vectors of a row that are computed together: attention_rows times as many sums, and they, must fit in registers.
constexpr int most_vectors = HWY_ARCH_X86 && HWY_MAX_BYTES < 64 ? 3 : 4;
static_assert(attention_rows == 4);

HWY_INLINE int64_t lanes_of(Tag d) { return static_cast<int64_t>(hn::Lanes(d)); }

/// 2^x for x <= 127; 0 below -126; NaN stays NaN. Minimax polynomial of 2^r, |r| <= 1/2, exact at 0; with rounding the
/// relative error is below 1e-7.
HWY_INLINE Vector exp2_of(Tag d, Vector x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; 127 is the exponent's bias.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::Add(hn::Max(x, hn::Set(d, -126.0f)), magic);
  const auto r = hn::Sub(x, hn::Sub(shifted, magic));
  auto p = hn::Set(d, 0.0001559467782f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.001340664341f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.009617692791f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550310388f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.2402265221f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931472421f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const hn::RebindToUnsigned<Tag> bits;
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, power));
}

/// What the sums of a product start from.
enum class Start { zero, sum, scaled_sum };

template <Start kStart>
HWY_INLINE Vector first(Tag d, const float* c, Vector factor) {
  if constexpr (kStart == Start::zero) return hn::Zero(d);
  if constexpr (kStart == Start::sum) return hn::Load(d, c);
  return hn::Mul(hn::Load(d, c), factor);
}

/// c[r][j] = start + sum over s < steps of a[r * a_row + s * a_step] * b[s * b_step + j], for kRows rows r and kVectors
/// vectors of columns j. Each element is one chain of fused multiply-adds over s.
template <int kRows, int kVectors, Start kStart>
HWY_INLINE void tile_product(const float* HWY_RESTRICT a, int64_t a_row, int64_t a_step, const float* HWY_RESTRICT b,
                             int64_t b_step, int64_t steps, const float* factors, float* HWY_RESTRICT c,
                             int64_t c_row) {
  static_assert((kRows == 1 || kRows == 4) && kVectors >= 1 && kVectors <= 4);
  const Tag d;
  const int64_t n = lanes_of(d);
  constexpr bool two = kVectors > 1, three = kVectors > 2, four = kVectors > 3, rows = kRows > 1;
  constexpr bool scaled = kStart == Start::scaled_sum;
  const auto none = hn::Zero(d);
  const auto f0 = scaled ? hn::Set(d, factors[0]) : none;
  auto c00 = first<kStart>(d, c, f0);
  auto c01 = two ? first<kStart>(d, c + n, f0) : none;
  auto c02 = three ? first<kStart>(d, c + 2 * n, f0) : none;
  auto c03 = four ? first<kStart>(d, c + 3 * n, f0) : none;
  const auto f1 = scaled && rows ? hn::Set(d, factors[1]) : none;
  auto c10 = rows ? first<kStart>(d, c + c_row, f1) : none;
  auto c11 = rows && two ? first<kStart>(d, c + c_row + n, f1) : none;
  auto c12 = rows && three ? first<kStart>(d, c + c_row + 2 * n, f1) : none;
  auto c13 = rows && four ? first<kStart>(d, c + c_row + 3 * n, f1) : none;
  const auto f2 = scaled && rows ? hn::Set(d, factors[2]) : none;
  auto c20 = rows ? first<kStart>(d, c + 2 * c_row, f2) : none;
  auto c21 = rows && two ? first<kStart>(d, c + 2 * c_row + n, f2) : none;
  auto c22 = rows && three ? first<kStart>(d, c + 2 * c_row + 2 * n, f2) : none;
  auto c23 = rows && four ? first<kStart>(d, c + 2 * c_row + 3 * n, f2) : none;
  const auto f3 = scaled && rows ? hn::Set(d, factors[3]) : none;
  auto c30 = rows ? first<kStart>(d, c + 3 * c_row, f3) : none;
  auto c31 = rows && two ? first<kStart>(d, c + 3 * c_row + n, f3) : none;
  auto c32 = rows && three ? first<kStart>(d, c + 3 * c_row + 2 * n, f3) : none;
  auto c33 = rows && four ? first<kStart>(d, c + 3 * c_row + 3 * n, f3) : none;
  for (int64_t s = 0; s < steps; ++s) {
    const auto b0 = hn::Load(d, b);
    const auto b1 = two ? hn::Load(d, b + n) : none;
    const auto b2 = three ? hn::Load(d, b + 2 * n) : none;
    const auto b3 = four ? hn::Load(d, b + 3 * n) : none;
    const auto a0 = hn::Set(d, a[0]);
    c00 = hn::MulAdd(a0, b0, c00);
    if constexpr (two) c01 = hn::MulAdd(a0, b1, c01);
    if constexpr (three) c02 = hn::MulAdd(a0, b2, c02);
    if constexpr (four) c03 = hn::MulAdd(a0, b3, c03);
    if constexpr (rows) {
      const auto a1 = hn::Set(d, a[a_row]);
      c10 = hn::MulAdd(a1, b0, c10);
      if constexpr (two) c11 = hn::MulAdd(a1, b1, c11);
      if constexpr (three) c12 = hn::MulAdd(a1, b2, c12);
      if constexpr (four) c13 = hn::MulAdd(a1, b3, c13);
      const auto a2 = hn::Set(d, a[2 * a_row]);
      c20 = hn::MulAdd(a2, b0, c20);
      if constexpr (two) c21 = hn::MulAdd(a2, b1, c21);
      if constexpr (three) c22 = hn::MulAdd(a2, b2, c22);
      if constexpr (four) c23 = hn::MulAdd(a2, b3, c23);
      const auto a3 = hn::Set(d, a[3 * a_row]);
      c30 = hn::MulAdd(a3, b0, c30);
      if constexpr (two) c31 = hn::MulAdd(a3, b1, c31);
      if constexpr (three) c32 = hn::MulAdd(a3, b2, c32);
      if constexpr (four) c33 = hn::MulAdd(a3, b3, c33);
    }
    a += a_step;
    b += b_step;
  }
  hn::Store(c00, d, c);
  if constexpr (two) hn::Store(c01, d, c + n);
  if constexpr (three) hn::Store(c02, d, c + 2 * n);
  if constexpr (four) hn::Store(c03, d, c + 3 * n);
  if constexpr (rows) {
    hn::Store(c10, d, c + c_row);
    if constexpr (two) hn::Store(c11, d, c + c_row + n);
    if constexpr (three) hn::Store(c12, d, c + c_row + 2 * n);
    if constexpr (four) hn::Store(c13, d, c + c_row + 3 * n);
    hn::Store(c20, d, c + 2 * c_row);
    if constexpr (two) hn::Store(c21, d, c + 2 * c_row + n);
    if constexpr (three) hn::Store(c22, d, c + 2 * c_row + 2 * n);
    if constexpr (four) hn::Store(c23, d, c + 2 * c_row + 3 * n);
    hn::Store(c30, d, c + 3 * c_row);
    if constexpr (two) hn::Store(c31, d, c + 3 * c_row + n);
    if constexpr (three) hn::Store(c32, d, c + 3 * c_row + 2 * n);
    if constexpr (four) hn::Store(c33, d, c + 3 * c_row + 3 * n);
  }
}

/// tile_product over any number of vectors of columns, in near-equal parts.
template <int kRows, Start kStart>
HWY_INLINE void product(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, int64_t steps,
                        int64_t vectors, float* c, int64_t c_row, const float* factors = nullptr) {
  const int64_t n = lanes_of(Tag());
  while (vectors > 0) {
    const int64_t now = divide_up(vectors, divide_up(vectors, most_vectors));
    switch (now) {
      case 1: tile_product<kRows, 1, kStart>(a, a_row, a_step, b, b_step, steps, factors, c, c_row); break;
      case 2: tile_product<kRows, 2, kStart>(a, a_row, a_step, b, b_step, steps, factors, c, c_row); break;
      case 3: tile_product<kRows, 3, kStart>(a, a_row, a_step, b, b_step, steps, factors, c, c_row); break;
      default:
        if constexpr (most_vectors > 3)
          tile_product<kRows, 4, kStart>(a, a_row, a_step, b, b_step, steps, factors, c, c_row);
    }
    vectors -= now;
    b += now * n;
    c += now * n;
  }
}

/// Rows of `width` floats into rows of `padded`, times `factor`; what is past `width`, and rows past `rows`, are zero.
void pack_rows(const float* from, int64_t stride, int64_t rows, int64_t all_rows, int64_t width, float factor,
               float* to, int64_t padded) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    const float* source = from + r * stride;
    float* target = to + r * padded;
    for (int64_t i = width; i < padded; ++i) target[i] = 0;
    each_vector(d, width, [=](int64_t i, auto span) HWY_ATTR {
      store(d, hn::Mul(load(d, source + i, span), hn::Set(d, factor)), target + i, span);
    });
  }
  std::fill(to + rows * padded, to + all_rows * padded, 0.0f);
}

/// to[c][r] = from[r][c], rows of `to` attention_tile long; zero from column `rows` to the next multiple of the padding.
void pack_turned(const float* from, int64_t stride, int64_t rows, int64_t width, float* to) {
  int64_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (; row + 4 <= rows; row += 4) {
    const float *f0 = from + row * stride, *f1 = f0 + stride, *f2 = f1 + stride, *f3 = f2 + stride;
    float* t = to + row;
    int64_t c = 0;
    for (; c + 4 <= width; c += 4, t += 4 * attention_tile) {
      const auto v0 = hn::LoadU(d, f0 + c), v1 = hn::LoadU(d, f1 + c), v2 = hn::LoadU(d, f2 + c),
                 v3 = hn::LoadU(d, f3 + c);
      const auto even_low = hn::InterleaveLower(d, v0, v2), odd_low = hn::InterleaveLower(d, v1, v3);
      const auto even_high = hn::InterleaveUpper(d, v0, v2), odd_high = hn::InterleaveUpper(d, v1, v3);
      hn::Store(hn::InterleaveLower(d, even_low, odd_low), d, t);
      hn::Store(hn::InterleaveUpper(d, even_low, odd_low), d, t + attention_tile);
      hn::Store(hn::InterleaveLower(d, even_high, odd_high), d, t + 2 * attention_tile);
      hn::Store(hn::InterleaveUpper(d, even_high, odd_high), d, t + 3 * attention_tile);
    }
    for (; c < width; ++c, t += attention_tile) {
      t[0] = f0[c];
      t[1] = f1[c];
      t[2] = f2[c];
      t[3] = f3[c];
    }
  }
#endif
  for (; row < rows; ++row)
    for (int64_t c = 0; c < width; ++c) to[c * attention_tile + row] = from[row * stride + c];
  const int64_t end = round_up(rows, attention_pad);
  if (rows < end)
    for (int64_t c = 0; c < width; ++c) std::fill(to + c * attention_tile + rows, to + c * attention_tile + end, 0.0f);
}

/// One row of scores becomes probabilities relative to the running maximum. The first `valid` (at most `count`) of
/// `count` whole vectors' scores exist; the others' probabilities are 0. Updates maximum and sums; returns the factor by
/// which what was summed before shrinks.
HWY_INLINE float softmax_row(float* scores, int64_t valid, int64_t count, float* maximum, float* sums, bool fresh) {
  const Tag d;
  const int64_t n = lanes_of(d), whole = valid / n * n;
  const float before = fresh ? -std::numeric_limits<float>::infinity() : *maximum;
  auto most = hn::Set(d, before);
  for (int64_t i = 0; i < whole; i += n) most = hn::Max(most, hn::Load(d, scores + i));
  if (whole < valid) {
    const auto exists = hn::FirstN(d, static_cast<size_t>(valid - whole));
    const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
    const auto masked = hn::IfThenElse(exists, hn::Load(d, scores + whole), lowest);
    hn::Store(masked, d, scores + whole);
    most = hn::Max(most, masked);
  }
  const float now = hn::GetLane(hn::MaxOfLanes(d, most));
  const auto limit = hn::Set(d, now);
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i < valid; i += n) {
    const auto p = exp2_of(d, hn::Sub(hn::Load(d, scores + i), limit));
    hn::Store(p, d, scores + i);
    sum = hn::Add(sum, p);
  }
  for (; i < count; i += n) hn::Store(hn::Zero(d), d, scores + i);
  *maximum = now;
  if (fresh) {
    hn::Store(sum, d, sums);
    return 0;
  }
  const auto shrink = exp2_of(d, hn::Set(d, before - now));
  hn::Store(hn::MulAdd(hn::Load(d, sums), shrink, sum), d, sums);
  return hn::GetLane(shrink);
}

/// One tile of keys for kRows queries of one head: scores, probabilities, and their share of the output.
template <int kRows>
HWY_INLINE void forward_rows(const AttentionForwardTiles& t, float* tiles, int64_t row, int64_t real, int64_t valid,
                             int64_t keys, int64_t head_dim, bool fresh) {
  const Tag d;
  const int64_t n = lanes_of(d), vectors = divide_up(keys, n);
  float* scores = tiles + t.scores;
  product<kRows, Start::zero>(tiles + t.queries + row * t.width, t.width, 1, tiles + t.keys, attention_tile, head_dim,
                              vectors, scores, attention_tile);
  float shrink[attention_rows] = {};
  for (int64_t r = 0; r < real; ++r)
    shrink[r] = softmax_row(scores + r * attention_tile, std::clamp<int64_t>(valid + r, 0, keys), vectors * n,
                            tiles + t.maxima + row + r, tiles + t.sums + (row + r) * attention_pad, fresh);
  // Rows that pad the last group: anything finite will do.
  for (int64_t r = real; r < kRows; ++r) std::fill_n(scores + r * attention_tile, vectors * n, 0.0f);
  float* outputs = tiles + t.outputs + row * t.width;
  if (fresh)
    product<kRows, Start::zero>(scores, attention_tile, 1, tiles + t.values, t.width, keys, t.width / n, outputs,
                                t.width);
  else
    product<kRows, Start::scaled_sum>(scores, attention_tile, 1, tiles + t.values, t.width, keys, t.width / n, outputs,
                                      t.width, shrink);
}

/// Asks for some rows of keys or values, each of which lies on a page of its own, before they are packed.
HWY_INLINE void prefetch_rows(const float* from, int64_t stride, int64_t rows, int64_t width) {
  constexpr int64_t line = 64 / sizeof(float);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; i += line) hwy::Prefetch(from + r * stride + i);
}

/// Queries [first, first + rows) of the heads that share one KV head.
void attention_forward(const AttentionForwardTask& task, float* tiles) {
  const Tag d;
  const AttentionForwardTiles t(task.head_dim, task.group, task.tile_rows);
  const int64_t padded = round_up(task.rows, attention_rows), last = task.position + task.rows - 1;
  for (int64_t g = 0; g < task.group; ++g)
    pack_rows(task.q + g * task.head_dim, task.q_stride, task.rows, padded, task.head_dim, task.scale * log2_e,
              tiles + t.queries + g * padded * t.width, t.width);
  for (int64_t key = 0; key <= last; key += attention_tile) {
    const int64_t tile_keys = std::min(attention_tile, last + 1 - key);
    pack_turned(task.k + key * task.kv_stride, task.kv_stride, tile_keys, task.head_dim, tiles + t.keys);
    pack_rows(task.v + key * task.kv_stride, task.kv_stride, tile_keys, tile_keys, task.head_dim, 1, tiles + t.values,
              t.width);
    // The first group with a query that may see this tile.
    const int64_t begin = std::max<int64_t>(0, (key - task.position) / attention_rows * attention_rows);
    for (int64_t g = 0; g < task.group; ++g) {
      for (int64_t row = begin; row < task.rows; row += attention_rows) {
        const int64_t real = std::min(attention_rows, task.rows - row);
        const int64_t valid = task.position + row - key + 1;  // keys of this tile that the first row may see
        const int64_t keys = std::min(tile_keys, valid + real - 1);
        if (keys <= 0) continue;
        // Meanwhile the next tile's rows arrive, a group of them at a time.
        const int64_t next = key + attention_tile + row - begin, ahead = std::min(attention_rows, last + 1 - next);
        if (g == 0 && next < key + 2 * attention_tile && ahead > 0) {
          prefetch_rows(task.k + next * task.kv_stride, task.kv_stride, ahead, task.head_dim);
          prefetch_rows(task.v + next * task.kv_stride, task.kv_stride, ahead, task.head_dim);
        }
        if (task.rows == 1)
          forward_rows<1>(t, tiles, g * padded, 1, valid, keys, task.head_dim, key == 0);
        else
          forward_rows<4>(t, tiles, g * padded + row, real, valid, keys, task.head_dim, key == 0);
      }
    }
  }
  for (int64_t g = 0; g < task.group; ++g) {
    for (int64_t r = 0; r < task.rows; ++r) {
      const int64_t row = g * padded + r;
      const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, tiles + t.sums + row * attention_pad)));
      const float* from = tiles + t.outputs + row * t.width;
      float* to = task.y + r * task.y_stride + g * task.head_dim;
      const float inverse = 1 / sum;
      each_vector(d, task.head_dim, [=](int64_t i, auto span) HWY_ATTR {
        store(d, hn::Mul(load(d, from + i, span), hn::Set(d, inverse)), to + i, span);
      });
      tiles[t.sums + row * attention_pad] = sum;
    }
  }
  if (task.lse == nullptr) return;
  for (int64_t g = 0; g < task.group; ++g) {
    for (int64_t r = 0; r < task.rows; ++r) {
      const int64_t row = g * padded + r;
      task.lse[g * task.lse_stride + r] = tiles[t.maxima + row] * ln_2 + std::log(tiles[t.sums + row * attention_pad]);
    }
  }
}

/// sums[row] = a[row] . b[row].
void row_dots(const float* a, const float* b, int64_t rows, int64_t stride, int64_t width, float* sums) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    const float *from_a = a + r * stride, *from_b = b + r * stride;
    sums[r] = sum_vectors(d, width, [=](int64_t i, auto span) HWY_ATTR {
      return hn::Mul(load(d, from_a + i, span), load(d, from_b + i, span));
    });
  }
}

/// Scores become probabilities, their gradients become the scores' gradients (without the scale). Past the first
/// `valid` of `count` whole vectors' both are 0.
HWY_INLINE void gradient_row(float* scores, float* gradients, int64_t valid, int64_t count, float lse, float sum) {
  const Tag d;
  const int64_t n = lanes_of(d), whole = valid / n * n;
  const auto offset = hn::Set(d, lse), mean = hn::Set(d, sum);
  int64_t i = 0;
  for (; i < whole; i += n) {
    const auto p = exp2_of(d, hn::Sub(hn::Load(d, scores + i), offset));
    hn::Store(p, d, scores + i);
    hn::Store(hn::Mul(p, hn::Sub(hn::Load(d, gradients + i), mean)), d, gradients + i);
  }
  if (i < valid) {
    const auto exists = hn::FirstN(d, static_cast<size_t>(valid - i));
    const auto p = hn::IfThenElseZero(exists, exp2_of(d, hn::Sub(hn::Load(d, scores + i), offset)));
    hn::Store(p, d, scores + i);
    const auto ds = hn::Mul(p, hn::Sub(hn::Load(d, gradients + i), mean));
    hn::Store(hn::IfThenElseZero(exists, ds), d, gradients + i);
    i += n;
  }
  for (; i < count; i += n) {
    hn::Store(hn::Zero(d), d, scores + i);
    hn::Store(hn::Zero(d), d, gradients + i);
  }
}

/// to[row] = factor * from[row], or to[row] += factor * from[row].
HWY_INLINE void put_rows(const float* from, int64_t padded, int64_t rows, int64_t width, float factor, bool add,
                         float* to, int64_t stride) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    const float* source = from + r * padded;
    float* target = to + r * stride;
    each_vector(d, width, [=](int64_t i, auto span) HWY_ATTR {
      const auto v = load(d, source + i, span), f = hn::Set(d, factor);
      store(d, add ? hn::MulAdd(v, f, load(d, target + i, span)) : hn::Mul(v, f), target + i, span);
    });
  }
}

/// A tile of queries of one head against a tile of keys: adds to the gradients of keys, values and queries.
/// `on_diagonal`: both tiles are of the same positions.
HWY_INLINE void backward_tile(const AttentionBackwardTiles& t, float* tiles, const float* lse, int64_t head_dim,
                              int64_t query, int64_t rows, int64_t keys, bool on_diagonal, bool fresh) {
  const int64_t n = lanes_of(Tag()), width = t.width, columns = width / n;
  const float *queries = tiles + t.queries + query * width, *doutputs = tiles + t.doutputs + query * width;
  float *probabilities = tiles + t.probabilities, *dscores = tiles + t.dscores;
  float* dqueries = tiles + t.dqueries + query * width;
  for (int64_t row = 0; row < rows; row += attention_rows) {
    const int64_t real = std::min(attention_rows, rows - row);
    const int64_t seen = on_diagonal ? std::min(keys, row + real) : keys, vectors = divide_up(seen, n);
    float *p = probabilities + row * attention_tile, *ds = dscores + row * attention_tile;
    product<4, Start::zero>(queries + row * width, width, 1, tiles + t.keys_turned, attention_tile, head_dim, vectors,
                            p, attention_tile);
    product<4, Start::zero>(doutputs + row * width, width, 1, tiles + t.values_turned, attention_tile, head_dim,
                            vectors, ds, attention_tile);
    for (int64_t r = 0; r < real; ++r)
      gradient_row(p + r * attention_tile, ds + r * attention_tile, on_diagonal ? std::min(keys, row + r + 1) : keys,
                   vectors * n, lse[query + row + r] * log2_e, tiles[t.sums + query + row + r]);
    if (fresh)
      product<4, Start::zero>(ds, attention_tile, 1, tiles + t.keys, width, seen, columns, dqueries + row * width,
                              width);
    else
      product<4, Start::sum>(ds, attention_tile, 1, tiles + t.keys, width, seen, columns, dqueries + row * width,
                             width);
  }
  // Queries before a key do not see it. A group of keys starts where a group of queries does.
  for (int64_t key = 0; key < keys; key += attention_rows) {
    const int64_t from = on_diagonal ? key : 0, at = from * attention_tile + key;
    product<4, Start::sum>(probabilities + at, 1, attention_tile, doutputs + from * width, width, rows - from, columns,
                           tiles + t.dvalues + key * width, width);
    product<4, Start::sum>(dscores + at, 1, attention_tile, queries + from * width, width, rows - from, columns,
                           tiles + t.dkeys + key * width, width);
  }
}

/// All gradients of one KV head of one sequence, and of the query heads that share it, in their order.
void attention_gradients(const AttentionBackwardTask& task, float* tiles) {
  const int64_t h = task.head_dim, length = task.sequence, padded = round_up(length, attention_rows);
  const AttentionBackwardTiles t(h, length);
  for (int64_t g = 0; g < task.group; ++g) {
    const float* dy = task.dy + g * h;
    pack_rows(task.q + g * h, task.stride, length, padded, h, task.scale * log2_e, tiles + t.queries, t.width);
    pack_rows(dy, task.y_stride, length, padded, h, 1, tiles + t.doutputs, t.width);
    row_dots(dy, task.y + g * h, length, task.y_stride, h, tiles + t.sums);
    for (int64_t key = 0; key < length; key += attention_tile) {
      const int64_t keys = std::min(attention_tile, length - key), offset = key * task.stride;
      pack_turned(task.k + offset, task.stride, keys, h, tiles + t.keys_turned);
      pack_turned(task.v + offset, task.stride, keys, h, tiles + t.values_turned);
      pack_rows(task.k + offset, task.stride, keys, keys, h, 1, tiles + t.keys, t.width);
      const int64_t size = round_up(keys, attention_rows) * t.width;
      std::fill_n(tiles + t.dkeys, size, 0.0f);
      std::fill_n(tiles + t.dvalues, size, 0.0f);
      for (int64_t query = key; query < length; query += attention_tile)
        backward_tile(t, tiles, task.lse + g * task.lse_stride, h, query, std::min(attention_tile, length - query),
                      keys, query == key, key == 0);
      // The packed queries carry scale * log2(e); the scale belongs there.
      put_rows(tiles + t.dkeys, t.width, keys, h, ln_2, g > 0, task.dk + offset, task.stride);
      put_rows(tiles + t.dvalues, t.width, keys, h, 1, g > 0, task.dv + offset, task.stride);
    }
    put_rows(tiles + t.dqueries, t.width, length, h, task.scale, false, task.dq + g * h, task.stride);
  }
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(attention_forward);
HWY_EXPORT(attention_gradients);

namespace {

/// Tasks of unequal size, taken by whichever thread is free: body(task, worker) with worker < min(threads, count).
template <typename Body>
void parallel_tasks(int threads, int64_t count, const Body& body) {
  const int team = static_cast<int>(std::min<int64_t>(threads, count));
  if (team <= 1) {
    for (int64_t task = 0; task < count; ++task) body(task, 0);
    return;
  }
  std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(team)
  for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(task, omp_get_thread_num());
}

/// The shapes of one operation.
struct Heads {
  int64_t heads = 0, kv_heads = 0, group = 0, head_dim = 0, sequence = 0;
  int64_t tokens = 0, stride = 0, y_stride = 0;
  float scale = 0;

  Heads(const ops::Op& op, const ops::Tensor& qkv, const ops::Tensor& y) {
    const auto& a = op.as<ops::AttentionAttributes>();
    STRATA_CHECK(a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0 && a.sequence > 0 && a.heads % a.kv_heads == 0,
                 "attention with {} heads, {} KV heads of {}, sequence {}", a.heads, a.kv_heads, a.head_dim,
                 a.sequence);
    STRATA_CHECK(qkv.dtype == DType::f32 && y.dtype == DType::f32);
    heads = a.heads;
    kv_heads = a.kv_heads;
    group = heads / kv_heads;
    head_dim = a.head_dim;
    sequence = a.sequence;
    scale = a.scale;
    stride = (heads + 2 * kv_heads) * head_dim;
    y_stride = heads * head_dim;
    tokens = rows_of(y).count;
    STRATA_CHECK(rows_of(qkv) == (Rows{tokens, stride}) && rows_of(y).width == y_stride, "{}, {}", qkv.name, y.name);
  }
};

void check_workspace(const ops::Op& op, Tensors tensors, int threads) {
  const int64_t bytes = attention_workspace(op, tensors, threads);
  STRATA_CHECK(op.workspace >= 0 && tensors[static_cast<size_t>(op.workspace)].bytes() >= bytes,
               "{} wants a workspace of {} bytes", ops::name_of(op.kind), bytes);
}

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 1, 1, 2, 2);
  const Heads a(op, input(op, tensors, 0), output(op, tensors, 0));
  STRATA_CHECK(a.tokens % a.sequence == 0 && output(op, tensors, 1).shape.elements() == a.tokens * a.heads);
  const int64_t groups = a.tokens / a.sequence * a.kv_heads;
  const int64_t rows = attention_queries(groups, a.group, a.sequence, a.head_dim, threads),
                tiles = divide_up(a.sequence, rows);
  const int64_t floats = AttentionForwardTiles(a.head_dim, a.group, rows).total;
  check_workspace(op, tensors, threads);
  const auto function = HWY_DYNAMIC_DISPATCH(attention_forward);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* qkv = pointer<const float>(operands[0]);
    float *y = pointer<float>(operands[1]), *lse = pointer<float>(operands[2]), *work = pointer<float>(operands[3]);
    parallel_tasks(threads, groups * tiles, [=](int64_t index, int worker) {
      // Late queries, which see the most keys, come first.
      const int64_t first = (tiles - 1 - index / groups) * rows, group = index % groups;
      const int64_t sequence = group / a.kv_heads, kv = group % a.kv_heads;
      const float* origin = qkv + sequence * a.sequence * a.stride;
      const int64_t head = kv * a.group;
      AttentionForwardTask task;
      task.q = origin + first * a.stride + head * a.head_dim;
      task.k = origin + (a.heads + kv) * a.head_dim;
      task.v = task.k + a.kv_heads * a.head_dim;
      task.y = y + (sequence * a.sequence + first) * a.y_stride + head * a.head_dim;
      task.lse = lse + (sequence * a.heads + head) * a.sequence + first;
      task.q_stride = task.kv_stride = a.stride;
      task.y_stride = a.y_stride;
      task.lse_stride = a.sequence;
      task.position = first;
      task.rows = std::min(rows, a.sequence - first);
      task.tile_rows = rows;
      task.group = a.group;
      task.head_dim = a.head_dim;
      task.scale = a.scale;
      function(task, work + worker * floats);
    });
  });
}

std::unique_ptr<Kernel> make_cached(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 3, 3, 1, 1);
  const Heads a(op, input(op, tensors, 0), output(op, tensors, 0));
  const int64_t cache_stride = 2 * a.kv_heads * a.head_dim;
  STRATA_CHECK(rows_of(input(op, tensors, 1)) == (Rows{a.sequence, cache_stride}) &&
               input(op, tensors, 1).dtype == DType::f32);
  const int64_t rows = attention_queries(a.kv_heads, a.group, a.tokens, a.head_dim, threads);
  const int64_t floats = AttentionForwardTiles(a.head_dim, a.group, rows).total;
  check_workspace(op, tensors, threads);
  const auto function = HWY_DYNAMIC_DISPATCH(attention_forward);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* qkv = pointer<const float>(operands[0]);
    float *cache = pointer<float>(operands[1]), *y = pointer<float>(operands[3]), *work = pointer<float>(operands[4]);
    const Positions now = new_positions(*pointer<const ops::StepInputs>(operands[2]), a.tokens, a.sequence);
    for (int64_t row = 0; row < now.count; ++row)
      std::memcpy(cache + (now.first + row) * cache_stride, qkv + row * a.stride + a.heads * a.head_dim,
                  static_cast<size_t>(cache_stride) * sizeof(float));
    std::fill(y + now.count * a.y_stride, y + a.tokens * a.y_stride, 0.0f);
    const int64_t tiles = divide_up(now.count, rows);
    parallel_tasks(threads, a.kv_heads * tiles, [=](int64_t index, int worker) {
      const int64_t first = (tiles - 1 - index / a.kv_heads) * rows, kv = index % a.kv_heads, head = kv * a.group;
      AttentionForwardTask task;
      task.q = qkv + first * a.stride + head * a.head_dim;
      task.k = cache + kv * a.head_dim;
      task.v = task.k + a.kv_heads * a.head_dim;
      task.y = y + first * a.y_stride + head * a.head_dim;
      task.q_stride = a.stride;
      task.kv_stride = cache_stride;
      task.y_stride = a.y_stride;
      task.position = now.first + first;
      task.rows = std::min(rows, now.count - first);
      task.tile_rows = rows;
      task.group = a.group;
      task.head_dim = a.head_dim;
      task.scale = a.scale;
      function(task, work + worker * floats);
    });
  });
}

std::unique_ptr<Kernel> make_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 4, 4, 1, 1);
  const Heads a(op, input(op, tensors, 1), input(op, tensors, 2));
  const ops::Tensor &dy = input(op, tensors, 0), &dqkv = output(op, tensors, 0);
  STRATA_CHECK(rows_of(dy) == (Rows{a.tokens, a.y_stride}) && rows_of(dqkv) == (Rows{a.tokens, a.stride}));
  STRATA_CHECK(dy.dtype == DType::f32 && dqkv.dtype == DType::f32 && a.tokens % a.sequence == 0);
  STRATA_CHECK(input(op, tensors, 3).shape.elements() == a.tokens * a.heads);
  const int64_t batch = a.tokens / a.sequence, floats = AttentionBackwardTiles(a.head_dim, a.sequence).total;
  check_workspace(op, tensors, threads);
  const auto gradients = HWY_DYNAMIC_DISPATCH(attention_gradients);
  return make_kernel([=](Operands operands, const Launch&) {
    const float *from_dy = pointer<const float>(operands[0]), *qkv = pointer<const float>(operands[1]);
    const float *y = pointer<const float>(operands[2]), *lse = pointer<const float>(operands[3]);
    float *to = pointer<float>(operands[4]), *work = pointer<float>(operands[5]);
    parallel_tasks(threads, batch * a.kv_heads, [=](int64_t index, int worker) {
      const int64_t sequence = index / a.kv_heads, kv = index % a.kv_heads, head = kv * a.group;
      const int64_t q = sequence * a.sequence * a.stride + head * a.head_dim;
      const int64_t k = sequence * a.sequence * a.stride + (a.heads + kv) * a.head_dim, v = k + a.kv_heads * a.head_dim;
      AttentionBackwardTask task;
      task.q = qkv + q;
      task.k = qkv + k;
      task.v = qkv + v;
      task.dq = to + q;
      task.dk = to + k;
      task.dv = to + v;
      task.stride = a.stride;
      const int64_t at = sequence * a.sequence * a.y_stride + head * a.head_dim;
      task.dy = from_dy + at;
      task.y = y + at;
      task.y_stride = a.y_stride;
      task.lse = lse + (sequence * a.heads + head) * a.sequence;
      task.lse_stride = a.sequence;
      task.sequence = a.sequence;
      task.group = a.group;
      task.head_dim = a.head_dim;
      task.scale = a.scale;
      gradients(task, work + worker * floats);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_attention(const ops::Op& op, Tensors tensors, int threads) {
  switch (op.kind) {
    case ops::Kind::attention: return make_forward(op, tensors, threads);
    case ops::Kind::cached_attention: return make_cached(op, tensors, threads);
    default: return make_backward(op, tensors, threads);
  }
}

}  // namespace strata::device::cpu
#endif
