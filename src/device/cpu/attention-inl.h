// What attention's forward and backward share: packing rows into tiles of floats, products of tiles, powers of two.
// Included by sources that are compiled once for each instruction set, hence the toggled guard.

#if defined(STRATA_DEVICE_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_DEVICE_CPU_ATTENTION_INL_H_
#undef STRATA_DEVICE_CPU_ATTENTION_INL_H_
#else
#define STRATA_DEVICE_CPU_ATTENTION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "device/attention_tiles.h"
#include "device/cpu/attention.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {
namespace {

using Tag = FloatTag;
using Vector = FloatVector;
static_assert(HWY_MAX_BYTES <= attention_pad * sizeof(float));

HWY_INLINE int64_t lanes_of(Tag d) { return static_cast<int64_t>(hn::Lanes(d)); }

/// 2^x for x <= 127; 0 below -126.5; NaN stays NaN. Minimax polynomial of 2^r, |r| <= 1/2, exact at 0; with rounding the
/// relative error is below 1e-7.
template <class D>
HWY_INLINE hn::Vec<D> exp2_of(D d, hn::Vec<D> x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; 127 is the exponent's bias, so that -127 gives
  // zero. Maximum takes the second operand if one is NaN, on x86.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto bounded = hn::Max(hn::Set(d, -127.0f), x), shifted = hn::Add(bounded, magic);
  const auto r = hn::Sub(bounded, hn::Sub(shifted, magic));
  auto p = hn::Set(d, 0.0001559467782f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.001340664341f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.009617692791f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550310388f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.2402265221f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931472421f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const hn::RebindToUnsigned<D> bits;
  const auto y = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted))));
  if constexpr (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR) {
    return y;
  } else {
    return hn::IfThenElse(hn::IsNaN(x), x, y);
  }
}

/// What the sums of a product start from: zero, what is there, or what is there times the row's factor.
enum class Start { zero, sum, scaled_sum };

/// Rows and vectors of columns that are computed together: their sums, a row of vectors and one more must fit in
/// registers.
constexpr int most_rows = HWY_TARGET <= HWY_AVX3 ? 6 : 4;
constexpr int most_vectors = HWY_ARCH_X86 && HWY_MAX_BYTES < 64 ? 3 : 4;

/// c[r][j] = start + sum over s < steps of a[r * a_row + s * a_step] * b[s * b_step + j], for kRows rows r and kVectors
/// vectors of columns j. Each element is one chain of fused multiply-adds over s.
template <int kRows, int kVectors>
HWY_NOINLINE void tile_product(const float* HWY_RESTRICT a, int64_t a_row, int64_t a_step, const float* HWY_RESTRICT b,
                               int64_t b_step, int64_t steps, Start start, const float* HWY_RESTRICT factors,
                               float* HWY_RESTRICT c, int64_t c_row) {
  const Tag d;
  const int64_t n = lanes_of(d);
  Vector sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = start == Start::zero ? hn::Zero(d) : hn::Load(d, c + r * c_row + v * n);
  }
  if (start == Start::scaled_sum) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, factors[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Mul(sums[r][v], factor);
    }
  }
  for (int64_t s = 0; s < steps; ++s) {
    Vector columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) columns[v] = hn::Load(d, b + v * n);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, a[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(factor, columns[v], sums[r][v]);
    }
    a += a_step;
    b += b_step;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, c + r * c_row + v * n);
  }
}

/// tile_product over any number of vectors of columns, in near-equal parts.
template <int kRows>
void product_rows(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, int64_t steps,
                  int64_t vectors, Start start, const float* factors, float* c, int64_t c_row) {
  const int64_t n = lanes_of(Tag());
  while (vectors > 0) {
    const int64_t now = divide_up(vectors, divide_up(vectors, most_vectors));
    switch (now) {
      case 1: tile_product<kRows, 1>(a, a_row, a_step, b, b_step, steps, start, factors, c, c_row); break;
      case 2: tile_product<kRows, 2>(a, a_row, a_step, b, b_step, steps, start, factors, c, c_row); break;
      case 3: tile_product<kRows, 3>(a, a_row, a_step, b, b_step, steps, start, factors, c, c_row); break;
      default:
        if constexpr (most_vectors > 3)
          tile_product<kRows, 4>(a, a_row, a_step, b, b_step, steps, start, factors, c, c_row);
    }
    vectors -= now;
    b += now * n;
    c += now * n;
  }
}

/// Any number of rows of tile_product. An element's bits do not depend on which rows and columns are computed with it.
void product(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, int64_t steps, int64_t rows,
             int64_t vectors, Start start, float* c, int64_t c_row, const float* factors = nullptr) {
  while (rows > 0) {
    const int64_t now = rows >= most_rows ? most_rows : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    switch (now) {
      case 1: product_rows<1>(a, a_row, a_step, b, b_step, steps, vectors, start, factors, c, c_row); break;
      case 2: product_rows<2>(a, a_row, a_step, b, b_step, steps, vectors, start, factors, c, c_row); break;
      case 4: product_rows<4>(a, a_row, a_step, b, b_step, steps, vectors, start, factors, c, c_row); break;
      default: product_rows<most_rows>(a, a_row, a_step, b, b_step, steps, vectors, start, factors, c, c_row);
    }
    rows -= now;
    a += now * a_row;
    c += now * c_row;
    if (factors != nullptr) factors += now;
  }
}

template <typename T>
void pack_typed(const T* from, int64_t stride, int64_t rows, int64_t width, float factor, float* to, int64_t padded) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    const T* source = from + r * stride;
    float* target = to + r * padded;
    for (int64_t i = width; i < padded; ++i) target[i] = 0;
    each_vector(d, width, [=](int64_t i, auto span) HWY_ATTR {
      store(d, hn::Mul(load(d, source + i, span), hn::Set(d, factor)), target + i, span);
    });
  }
}

/// Rows of `width` values into rows of `padded` floats, times `factor`; what is past `width` is zero.
void pack_rows(ReadRows from, int64_t rows, int64_t width, float factor, float* to, int64_t padded) {
  switch (from.type) {
    case DType::f32:
      return pack_typed(static_cast<const float*>(from.data), from.stride, rows, width, factor, to, padded);
    case DType::bf16:
      return pack_typed(static_cast<const Bfloat16*>(from.data), from.stride, rows, width, factor, to, padded);
    default: return pack_typed(static_cast<const Float16*>(from.data), from.stride, rows, width, factor, to, padded);
  }
}

template <typename T>
void put_typed(const float* from, int64_t padded, int64_t rows, int64_t width, float factor, T* to, int64_t stride) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    const float* source = from + r * padded;
    T* target = to + r * stride;
    each_vector(d, width, [=](int64_t i, auto span) HWY_ATTR {
      store(d, hn::Mul(load(d, source + i, span), hn::Set(d, factor)), target + i, span);
    });
  }
}

/// to[row] = factor * from[row], rounded.
void put_rows(const float* from, int64_t padded, int64_t rows, int64_t width, float factor, WriteRows to) {
  switch (to.type) {
    case DType::f32: return put_typed(from, padded, rows, width, factor, static_cast<float*>(to.data), to.stride);
    case DType::bf16: return put_typed(from, padded, rows, width, factor, static_cast<Bfloat16*>(to.data), to.stride);
    default: return put_typed(from, padded, rows, width, factor, static_cast<Float16*>(to.data), to.stride);
  }
}

/// to[c][r] = from[r][c], rows of `to` attention_tile long; zero from column `rows` to the next multiple of the padding.
void turn_rows(const float* from, int64_t stride, int64_t rows, int64_t width, float* to) {
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

/// turn_rows from rows in memory; what is not f32 yet goes through `staging`.
void pack_turned(ReadRows from, int64_t rows, int64_t width, float* staging, int64_t padded, float* to) {
  if (from.type == DType::f32) return turn_rows(static_cast<const float*>(from.data), from.stride, rows, width, to);
  pack_rows(from, rows, width, 1, staging, padded);
  turn_rows(staging, padded, rows, width, to);
}

/// Whether none of a tile's floats (a whole number of vectors) is infinite or NaN: products with zeros may then be
/// computed along with others.
HWY_INLINE bool all_finite(const float* tile, int64_t count) {
  const Tag d;
  const int64_t n = lanes_of(d);
  // Zero times what is not finite is NaN, and a sum with NaN stays it.
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto zero = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * n <= count; i += 4 * n) {
    s0 = hn::MulAdd(hn::Load(d, tile + i), zero, s0);
    s1 = hn::MulAdd(hn::Load(d, tile + i + n), zero, s1);
    s2 = hn::MulAdd(hn::Load(d, tile + i + 2 * n), zero, s2);
    s3 = hn::MulAdd(hn::Load(d, tile + i + 3 * n), zero, s3);
  }
  for (; i < count; i += n) s0 = hn::MulAdd(hn::Load(d, tile + i), zero, s0);
  return hn::AllFalse(d, hn::IsNaN(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

/// Keys [low, high) of a tile, in tile coordinates; nothing if low >= high.
struct Seen {
  int64_t low = 0, high = 0;
  bool none() const { return low >= high; }
  bool operator==(const Seen&) const = default;
};

/// What the query at `position`, whose first position seen is `first`, sees of `keys` keys from `key` on.
HWY_INLINE Seen seen_of(int64_t first, int64_t position, int64_t key, int64_t keys) {
  return {std::max<int64_t>(first - key, 0), std::min(position + 1 - key, keys)};
}

/// Rows that see different keys, and are computed together nevertheless: with zeros for what only others of them see.
constexpr int64_t ragged_rows = most_rows;

/// What a row holds outside of `seen`, in [begin, end), whole vectors, becomes `value`.
HWY_INLINE void mask_row(float* row, Seen seen, int64_t begin, int64_t end, float value) {
  const Tag d;
  const int64_t n = lanes_of(d);
  const auto others = hn::Set(d, value);
  const auto first = [=](int64_t count)
                         HWY_ATTR { return hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(count, 0, n))); };
  for (int64_t i = begin; i < end; i += n) {
    const auto exists = hn::AndNot(first(seen.low - i), first(seen.high - i));
    hn::Store(hn::IfThenElse(exists, hn::Load(d, row + i), others), d, row + i);
  }
}

/// The least range that holds all of `count` ranges.
HWY_INLINE Seen join(const Seen* seen, int64_t count) {
  Seen all{attention_tile, 0};
  for (int64_t r = 0; r < count; ++r) {
    if (seen[r].none()) continue;
    all.low = std::min(all.low, seen[r].low);
    all.high = std::max(all.high, seen[r].high);
  }
  return all;
}

}  // namespace
}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_DEVICE_CPU_ATTENTION_INL_H_
