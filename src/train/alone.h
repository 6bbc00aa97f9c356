#pragma once
// Operations timed alone, outside any step: what a device could do at best, and what a step's products would take if
// nothing else ran.

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "ops/op.h"
#include "step/program.h"

namespace strata::train {

/// Seconds of the fastest of some runs of one operation on operands of its own, small random numbers in them. The device
/// should be one that a run does not use, or its peak_bytes() be read before: it grows.
double seconds_alone(device::Device& device, ops::Op op, std::vector<ops::Tensor> tensors, int runs = 5);

/// FLOPs a second of a product of 1024 x 1024 by 1024 x 1024: the peak that a run's speed is held against where no data
/// sheet names one.
double measure_product_rate(device::Device& device, DType compute);
/// How the figure came about, for reports: "the best bf16 product of ...".
std::string product_rate_name(DType compute);

/// All products of one step as the device's library computes them, each shape alone.
struct ProductsAlone {
  double seconds = 0, flops = 0;
};
/// Attention counts as the products of its matrices, per sequence and head, whole squares timed and the causal share of
/// the time taken.
ProductsAlone products_alone(const step::Program& program, device::Device& device);

}  // namespace strata::train
