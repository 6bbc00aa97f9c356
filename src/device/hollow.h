#pragma once
// A device without arithmetic: memory and addresses are real, operations do nothing. A step on it moves the bytes that it
// would move and waits for what it would wait for, so that many ranks on few cores show a true schedule (with paced.h for
// how long operations last).

#include <memory>

#include "device/device.h"

namespace strata::device {

/// Workspace as the formulas say (make_formula_planner). Fresh memory reads as zero and takes none before it is written.
/// Operations, encodings and sums leave their results as they were; what travels is what happened to be there.
std::unique_ptr<Device> make_hollow(int threads);

}  // namespace strata::device
