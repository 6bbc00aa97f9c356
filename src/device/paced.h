#pragma once
// A device whose operations last as long as another's would: what they take less is slept through.

#include <functional>
#include <memory>
#include <span>

#include "device/device.h"

namespace strata::device {

/// Seconds that the modelled device takes for one operation.
using OpSeconds = std::function<double(const ops::Op&, std::span<const ops::Tensor>)>;

/// `inner`, which must be at least as fast as `seconds` says, on a clock of its own: each operation begins when it is launched
/// or the one before ends, whichever is later, and synchronise() returns when the last would have ended. Sleeping late is not
/// added up: a queue of operations ends when their sum says. Encodings and sums of transfers keep the inner device's speed.
std::unique_ptr<Device> make_paced(std::unique_ptr<Device> inner, OpSeconds seconds);

}  // namespace strata::device
