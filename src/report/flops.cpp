#include "report/flops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace strata::report {

const std::string_view model_flops_formula =
    "a token = 6 x weights in matrix products + 12 x layers x heads x head_dim x sequence "
    "(forward and backward, two a multiply-add, attention's full square, recompute not counted)";
const std::string_view hardware_flops_formula =
    "a step and rank = the sum over the step program's operations "
    "(forward, backward and update, two a multiply-add, attention's causal half, recompute counted)";

Rates rates(const train::RunStart& start, const train::StepReport& step) {
  const double tokens = static_cast<double>(step.tokens) / step.seconds;
  return {.tokens = tokens,
          .model_flops =
              start.model_flops_per_token * tokens / static_cast<double>(std::max<int64_t>(start.batch.ranks, 1)),
          .hardware_flops = start.program_flops / step.seconds};
}

std::string flops_text(double flops) {
  if (!std::isfinite(flops)) return "?";
  static constexpr const char* names[] = {"M", "G", "T", "P", "E"};
  double value = flops / 1e6;
  int unit = 0;
  while (value >= 999.5 && unit < 4) value /= 1000, ++unit;
  return fmt::format("{:.{}f} {}FLOP", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, names[unit]);
}

}  // namespace strata::report
