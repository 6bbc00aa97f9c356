#pragma once
// What work costs on a described machine, from shapes alone.

#include <cstdint>
#include <span>

#include "comm/messages.h"
#include "machine/file.h"
#include "ops/op.h"
#include "step/program.h"

namespace strata::simulate {

/// Seconds of one operation, alone on the device: `launch`, and the longer of its products at product_share of the peak
/// of their type and its bytes (read and written once each) at memory_share of the memory's bandwidth.
double op_seconds(const machine::Device& device, const ops::Op& op, std::span<const ops::Tensor> tensors);

/// Seconds of all operations of a block, one after the other.
double block_seconds(const machine::Device& device, const step::Block& block);

/// Seconds of one hop whose members differ in the coordinates of levels [first_level, first_level + widths), when all
/// ranks of the machine run it at the same time, each link carrying both directions at its full rate.
///
/// Direct: every level's links carry what their ranks send over it side by side; the slowest counts. A link that ranks
/// share carries what all of them send. Ring: rounds follow each other, each as slow as the slowest link on the way; of the
/// ranks that share a link, only those cross it at once whose rings are different ones. `inner`: ranks inside one
/// group of the levels below first_level.
double hop_seconds(const comm::Hop& hop, std::span<const machine::Link> links, int64_t inner);

/// The same of a program's transfer.
double transfer_seconds(const machine::Machine& machine, const step::Program& program, const step::Transfer& transfer);

}  // namespace strata::simulate
