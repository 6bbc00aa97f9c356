#pragma once
// Loops beside the library's matrix products: products of a handful of rows, sums of columns, and conversions for types
// that the library does not multiply. T is the compute type: float, bfloat16 or float16 behind a void pointer.

#include <cstdint>

#include "core/types.h"

namespace strata::device::cpu {

/// Columns [begin, end) of y[rows][outer] = x[rows][inner] w[outer][inner]^T + bias, for few rows: w is read once.
/// `begin` is a multiple of four: an element's bits then depend on nothing but its own operands. bias may be null.
using LinearFewRows = void (*)(const void* x, const void* w, const void* bias, void* y, int64_t rows, int64_t inner,
                               int64_t outer, int64_t begin, int64_t end);
LinearFewRows linear_few_rows(DType dtype);

/// Columns that ColumnSums sums at most.
inline constexpr int64_t sum_columns = 256;
/// sum[c] (+)= x[0][c] + x[1][c] + ... for c < width, rows `stride` elements apart; the order depends on rows alone.
using ColumnSums = void (*)(const void* x, int64_t rows, int64_t stride, int64_t width, bool accumulate, float* sum);
ColumnSums column_sums(DType dtype);

/// Elements [begin, end) of to = from, widened.
using Widen = void (*)(const void* from, float* to, int64_t begin, int64_t end);
Widen widen(DType dtype);
/// Elements [begin, end) of to = from (+ addend, where it is not null), rounded once. `to` may be `addend`.
using Narrow = void (*)(const float* from, const void* addend, void* to, int64_t begin, int64_t end);
Narrow narrow(DType dtype);

}  // namespace strata::device::cpu
