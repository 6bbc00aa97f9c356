#pragma once
// The learning rate of each update, a pure function of its number: no state, so resuming restores nothing.

#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::optim {

enum class Shape : uint8_t {
  constant,  ///< stays at the full rate
  cosine,    ///< half a cosine from the full rate to min_lr
  linear,    ///< a straight line from the full rate to min_lr
  wsd,       ///< warm-up, stable, decay: the full rate, then a straight line to min_lr over the last `decay` steps
};
std::string_view name_of(Shape shape);  ///< "constant", "cosine", "linear", "wsd"

struct Schedule {
  Shape shape = Shape::constant;
  double warmup = 0;   ///< below 1: that share of all steps; from 1: that many steps
  double min_lr = 0;   ///< rate the decay aims at
  double decay = 0.1;  ///< wsd only; below 1: that share of all steps; from 1: that many steps
  bool operator==(const Schedule&) const = default;
};

/// A length given as a share (below 1) or as a number of steps, in whole steps (shares are rounded to the nearest).
int64_t steps_of(double share_or_steps, int64_t steps);

/// Rate of update `step` (from 0) of a run of `steps`, full rate `lr`. With w = warm-up steps:
///
///   step < w            lr (step + 1) / (w + 1): above zero from the first update on, lr itself first at step w
///   cosine, linear      progress p = (step - w) / (steps - w): exactly lr at step w; min_lr would come at step
///   `steps`, one
///                       past the last, so no update is spent at a rate of zero when min_lr = 0
///   wsd                 the same line over the last d steps, p = (step - (steps - d)) / d: exactly lr up to and
///   including
///                       step steps - d
///   step >= steps       min_lr (constant: lr)
double learning_rate(const Schedule& schedule, double lr, int64_t step, int64_t steps);

}  // namespace strata::optim
