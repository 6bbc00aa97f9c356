#pragma once

#include <cstdint>

namespace strata::device::cpu {

/// Some rows and columns of a table.
struct TablePart {
  int64_t first_row = 0, last_row = 0;
  int64_t first_column = 0, last_column = 0;
};

/// What the rows of a gather share.
struct Gather {
  const int32_t* tokens;
  const void *table, *positions;  ///< `positions` may be null
  void* y;
  int64_t width;
  int64_t first, sequence;  ///< row t is at position first + t % sequence
};

}  // namespace strata::device::cpu
