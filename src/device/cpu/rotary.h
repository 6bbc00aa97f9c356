#pragma once

#include <cstdint>

namespace strata::device::cpu {

/// What all rows of one rotary embedding share. A row's position is `first` + row modulo `sequence`.
struct Rotation {
  int64_t heads = 0, head_dim = 0;  ///< of each row, the heads that are turned; what follows them is only copied
  int64_t half = 0;                 ///< a head's elements i and i + half are turned together, for i below half
  int64_t width = 0;                ///< of a row
  int64_t rows = 0;                 ///< rows from here on are only copied
  int64_t first = 0, sequence = 1;
  float sign = 1;  ///< -1 turns back
};

}  // namespace strata::device::cpu
