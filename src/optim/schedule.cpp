#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace strata::optim {

std::string_view name_of(Shape shape) {
  switch (shape) {
    case Shape::constant: return "constant";
    case Shape::cosine: return "cosine";
    case Shape::linear: return "linear";
    case Shape::wsd: return "wsd";
  }
  return "?";
}

int64_t steps_of(double share_or_steps, int64_t steps) {
  STRATA_CHECK(share_or_steps >= 0 && steps >= 0);
  return share_or_steps < 1 ? std::llround(share_or_steps * static_cast<double>(steps)) : std::llround(share_or_steps);
}

double learning_rate(const Schedule& schedule, double lr, int64_t step, int64_t steps) {
  STRATA_CHECK(step >= 0 && steps >= 0);
  const int64_t warmup = steps_of(schedule.warmup, steps);
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (schedule.shape == Shape::constant) return lr;

  int64_t start = warmup;
  if (schedule.shape == Shape::wsd) start = std::max(warmup, steps - steps_of(schedule.decay, steps));
  // The ends come back as given, not as lr - 1 * (lr - min_lr) rounds.
  if (step >= steps) return schedule.min_lr;
  if (step <= start) return lr;
  const double progress = static_cast<double>(step - start) / static_cast<double>(steps - start);
  const double left =
      schedule.shape == Shape::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return schedule.min_lr + (lr - schedule.min_lr) * left;
}

}  // namespace strata::optim
