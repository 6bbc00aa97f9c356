#pragma once
// The loss scale of fp16 runs: gradients are computed times a factor that keeps small ones from vanishing, and divided by
// it before the update. A dynamic scale halves when a gradient overflows, and that step is skipped; it doubles after a
// window of good steps. The rule is DeepSpeed's (deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler).

#include <cstdint>

namespace strata::optim {

struct LossScaling {
  double fixed = 0;            ///< scale of the whole run; 0: dynamic
  int64_t initial_power = 16;  ///< a dynamic scale starts at 2 to this
  int64_t window = 1000;       ///< good steps after which it doubles
  int64_t hysteresis = 2;      ///< overflows until it halves
  bool consecutive = false;    ///< whether each good step restores the hysteresis; else only a doubling does
  double minimum = 1;          ///< an overflow at this scale ends the run
  bool operator==(const LossScaling&) const = default;
};

class LossScale {
 public:
  /// 1, for ever, for compute types that need none.
  LossScale() = default;
  explicit LossScale(const LossScaling& rule);

  double scale() const { return scale_; }

  /// Tells of one step whether its gradients overflowed (then it was skipped). Returns false if the scale can go no lower:
  /// the run has diverged.
  [[nodiscard]] bool update(bool overflow);

 private:
  LossScaling rule_{.fixed = 1};
  double scale_ = 1;
  int64_t iteration_ = 0, last_overflow_ = -1, hysteresis_ = 1;
};

}  // namespace strata::optim
