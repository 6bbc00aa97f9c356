#pragma once
// Choosing the next token from logits.

#include <cstdint>
#include <span>

namespace strata::execute {

struct Sampling {
  double temperature = 1;  ///< 0: always the likeliest
  int64_t top_k = 0;       ///< only the k likeliest; 0: all
  double top_p = 1;        ///< only the likeliest that together have this probability (Holtzman et al. 2020); 1: all
};

/// The chosen token. `random` is uniform in [0, 1). Ties go to the lower id; logits that are not finite are a run error.
/// top_k is applied first, then top_p on what is left.
int32_t sample(std::span<const float> logits, const Sampling& sampling, double random);

}  // namespace strata::execute
