#include "execute/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.h"

namespace strata::execute {

int32_t sample(std::span<const float> logits, const Sampling& sampling, double random) {
  STRATA_CHECK(!logits.empty());
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      throw run_error("the logit of token {} is {}: the model's weights are broken", i, logits[i]);
  if (sampling.temperature == 0 || sampling.top_k == 1)
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());

  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  size_t kept = order.size();
  if (sampling.top_k > 0) kept = std::min(kept, static_cast<size_t>(sampling.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), likelier);
  order.resize(kept);

  std::vector<double> weights(kept);
  const double top = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  double sum = 0;
  for (size_t i = 0; i < kept; ++i)
    sum += weights[i] =
        std::exp((static_cast<double>(logits[static_cast<size_t>(order[i])]) - top) / sampling.temperature);
  if (sampling.top_p < 1) {
    double reached = 0;
    size_t nucleus = 0;
    while (nucleus < kept && reached < sampling.top_p * sum) reached += weights[nucleus++];
    weights.resize(std::max<size_t>(nucleus, 1));
    sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  double target = random * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    target -= weights[i];
    if (target < 0) return order[i];
  }
  return order[weights.size() - 1];
}

}  // namespace strata::execute
