#pragma once
// Rates of a run. FLOPs are counted in two ways, and every report says which: model FLOPs, what the model needs by the
// field's convention whatever the machine does, and hardware FLOPs, what the step program runs.

#include <string>
#include <string_view>

#include "train/observer.h"

namespace strata::report {

/// Arithmetic peak of one rank's device for dense products in the compute type. A peak quoted for sparse products is
/// twice what any run here can reach: never give that one.
struct Peak {
  double flops = 0;    ///< a second; 0: unknown, and no share is shown
  std::string name{};  ///< what it is of and who says so
  bool known() const { return flops > 0; }
};

/// How model::train_flops_per_token counts: "FORMULA (what is counted)".
extern const std::string_view model_flops_formula;
/// How step::Program::flops counts, in the same form.
extern const std::string_view hardware_flops_formula;

struct Rates {
  double tokens = 0;          ///< a second, over all ranks
  double model_flops = 0;     ///< a second and rank
  double hardware_flops = 0;  ///< a second and rank: of the rank whose program the run started with
};

/// From the sizes in `start` (its pointers are not used). Infinite if the step took no time.
Rates rates(const train::RunStart& start, const train::StepReport& step);

/// "12.3 GFLOP", "1.25 TFLOP"; "?" if not finite.
std::string flops_text(double flops);

}  // namespace strata::report
