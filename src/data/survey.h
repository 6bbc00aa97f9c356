#pragma once
// What a dataset on disk holds, from one pass over it.

#include <cstdint>
#include <optional>

#include "data/megatron.h"

namespace strata::data {

/// How long things are, in tokens.
struct Lengths {
  int64_t count = 0, empty = 0;
  int64_t least = 0, most = 0;
  double mean = 0;
  /// At least this share of all is no longer; exact below 64 tokens, else rounded down by at most 1/64 of itself.
  int64_t p10 = 0, p50 = 0, p90 = 0, p99 = 0;
};

struct Survey {
  int32_t largest_id = -1;  ///< -1: there are no tokens
  int64_t distinct_ids = 0;
  /// Of single tokens, in nats; none where ids are so large that counting them would take too much memory.
  std::optional<double> entropy;
  Lengths sequences, documents;
};

/// Reads every token and the whole index. Throws an input error for an id that is not below `vocab`.
Survey survey(const MegatronFile& file, int64_t vocab);

}  // namespace strata::data
