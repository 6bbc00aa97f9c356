#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace strata::data {

namespace {
constexpr int64_t total_parts = int64_t{1} << 30;
}

Blend::Blend(std::span<const double> weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0)
      throw input_error("weight {} of the data sources is {}: a weight is a number from 0 up", i + 1, weights[i]);
    sum += weights[i];
  }
  if (!(sum > 0) || !std::isfinite(sum))
    throw input_error("the weights of the {} data sources sum to {}", weights.size(), sum);

  // Largest remainder; a positive weight keeps at least one part.
  std::vector<double> remainder(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * static_cast<double>(total_parts);
    const auto whole = std::max<int64_t>(static_cast<int64_t>(exact), weights[i] > 0 ? 1 : 0);
    parts_.push_back(whole);
    remainder[i] = exact - static_cast<double>(whole);
  }
  int64_t missing = total_parts - std::accumulate(parts_.begin(), parts_.end(), int64_t{0});
  while (missing != 0) {
    const int64_t step = missing > 0 ? 1 : -1;
    size_t best = parts_.size();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (weights[i] == 0 || (step < 0 && parts_[i] <= 1)) continue;
      if (best == parts_.size() ||
          static_cast<double>(step) * remainder[i] > static_cast<double>(step) * remainder[best])
        best = i;
    }
    STRATA_CHECK(best < parts_.size(), "more sources than parts");
    parts_[best] += step;
    remainder[best] -= static_cast<double>(step);
    missing -= step;
  }
}

// How many samples of one period fall due before half_tick / (2 x total_parts) of it: j with (2j+1)/(2 parts) < h/(2
// total).
int64_t Blend::due_before(int64_t half_tick, size_t source) const {
  const int64_t x = half_tick * parts_[source];  // (2j+1) x total < x; at most 2^31 x 2^30
  if (x <= total_parts) return 0;
  return (x - total_parts - 1) / (2 * total_parts) + 1;
}

int64_t Blend::due_before(int64_t half_tick) const {
  int64_t count = 0;
  for (size_t i = 0; i < parts_.size(); ++i) count += due_before(half_tick, i);
  return count;
}

Blend::Place Blend::at(int64_t sample) const {
  STRATA_CHECK(sample >= 0);
  const int64_t period = sample / total_parts, rank = sample % total_parts;
  // The half tick in which the sample falls due: the last h with due_before(h) <= rank. Every source has given its
  // share to within one half, which narrows the search.
  const auto slack = static_cast<int64_t>(parts_.size()) + 1;
  int64_t low = std::max<int64_t>(0, 2 * (rank - slack)), high = std::min(2 * total_parts, 2 * (rank + slack) + 2);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (due_before(middle) <= rank ? low : high) = middle;
  }
  // Within a half tick a source has at most one sample. Step through those in order of (time, source).
  int64_t left = rank - due_before(low);
  int64_t last_numerator = -1, last_parts = 1;  // time of the sample last stepped over, (2j+1) / parts
  size_t last_source = 0;
  while (true) {
    size_t next = parts_.size();
    int64_t next_numerator = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int64_t j = due_before(low, i);
      if (due_before(low + 1, i) == j) continue;
      const int64_t numerator = 2 * j + 1;
      if (last_numerator >= 0) {
        const int64_t mine = numerator * last_parts, theirs = last_numerator * parts_[i];
        if (mine < theirs || (mine == theirs && i <= last_source)) continue;
      }
      if (next == parts_.size() || numerator * parts_[next] < next_numerator * parts_[i]) {
        next = i;
        next_numerator = numerator;
      }
    }
    STRATA_CHECK(next < parts_.size(), "sample {}", sample);
    if (left-- == 0) {
      return {static_cast<int>(next), period * parts_[next] + (next_numerator - 1) / 2};
    }
    last_numerator = next_numerator;
    last_parts = parts_[next];
    last_source = next;
  }
}

}  // namespace strata::data
