#pragma once

#include <cstdint>

namespace strata::device::cpu {

/// Some rows and columns of a table.
struct TablePart {
  int64_t first_row = 0, last_row = 0;
  int64_t first_column = 0, last_column = 0;
};

}  // namespace strata::device::cpu
