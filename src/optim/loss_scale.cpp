#include "optim/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace strata::optim {

LossScale::LossScale(const LossScaling& rule)
    : rule_(rule),
      scale_(rule.fixed > 0 ? rule.fixed : std::exp2(static_cast<double>(rule.initial_power))),
      hysteresis_(rule.hysteresis) {}

bool LossScale::update(bool overflow) {
  if (rule_.fixed > 0) return !overflow;
  if (overflow) {
    last_overflow_ = iteration_;
    if (hysteresis_ > 1) {
      --hysteresis_;
    } else {
      if (scale_ <= rule_.minimum) return false;
      scale_ = std::max(scale_ / 2, rule_.minimum);
    }
  } else {
    if (rule_.consecutive) hysteresis_ = rule_.hysteresis;
    const int64_t good = iteration_ - last_overflow_ - 1;
    if (good > 0 && good % rule_.window == 0) {
      if (!rule_.consecutive) hysteresis_ = rule_.hysteresis;
      scale_ *= 2;
    }
  }
  ++iteration_;
  return true;
}

}  // namespace strata::optim
