#pragma once
// The yardstick of memory-bound kernels: the same traffic without the arithmetic.

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"

namespace strata::device {

/// One operand of a kernel, as memory sees it.
struct Stream {
  enum Use : uint8_t { read, write, update };
  int64_t bytes = 0;
  Use use = read;
};

/// On the CPU: a kernel whose operands have these sizes. Runs through all of them side by side, reading, writing zeros, or
/// reading and writing back the same.
std::unique_ptr<Kernel> make_stream(int threads, std::vector<Stream> streams);

}  // namespace strata::device
