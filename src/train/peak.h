#pragma once
// What a device could do at best: the peak that a run's speed is held against where no data sheet names one.

#include <string_view>

#include "device/device.h"

namespace strata::train {

/// FLOPs a second of the best of a few fp32 products of 1024 x 1024 by 1024 x 1024, about a tenth of a second in all. The
/// device should be one that a run does not use: its peak_bytes() grows.
double measure_product_rate(device::Device& device);

/// How the figure came about, for reports.
inline constexpr std::string_view product_rate_name =
    "the best fp32 product of 1024 x 1024 matrices, measured at the start";

}  // namespace strata::train
