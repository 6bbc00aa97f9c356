#include "simulate/cost_model.h"

#include <algorithm>

#include "comm/hop_run.h"
#include "core/error.h"
#include "ops/cost.h"

namespace strata::simulate {

double op_seconds(const machine::Device& device, const ops::Op& op, std::span<const ops::Tensor> tensors) {
  const ops::Cost cost = ops::cost(op, tensors);
  const DType type = op.in.empty() ? DType::f32 : tensors[static_cast<size_t>(op.in[0])].dtype;
  const double peak = type == DType::bf16 || type == DType::f16 ? device.peak : device.peak_fp32;
  return device.launch + std::max(cost.gemm_flops / (peak * device.product_share),
                                  cost.bytes / (device.memory_bandwidth * device.memory_share));
}

double block_seconds(const machine::Device& device, const step::Block& block) {
  double seconds = 0;
  for (const ops::Op& op : block.ops) seconds += op_seconds(device, op, block.tensors);
  return seconds;
}

double hop_seconds(const comm::Hop& hop, std::span<const machine::Link> links, int64_t inner) {
  STRATA_CHECK(links.size() == hop.widths.size());
  // `sharing` ranks send as much over a level's link as this one.
  const auto over = [&](size_t level, double bytes, int64_t sharing) {
    if (hop.widths[level] == 1) return 0.0;
    return links[level].latency + bytes / links[level].rate(sharing);
  };
  double seconds = 0;
  if (hop.algorithm == comm::Algorithm::direct) {
    const std::vector<comm::Sent> sent = comm::sent_by(hop, 0);
    // Two levels that share one link would add up; machine files give each level links of its own.
    for (size_t level = 0; level < links.size(); ++level) {
      seconds = std::max(seconds, over(level, static_cast<double>(sent[level].bytes), inner));
      inner *= hop.widths[level];
    }
    return seconds;
  }
  for (const comm::Message& message : comm::messages(hop, 0).sends) {
    double slowest = 0;
    for (size_t level = 0; level < links.size(); ++level)
      slowest = std::max(slowest, over(level, static_cast<double>(message.bytes), inner));
    seconds += slowest;
  }
  return seconds;
}

double transfer_seconds(const machine::Machine& machine, const step::Program& program, const step::Transfer& transfer) {
  STRATA_CHECK(machine.links.size() == program.widths.size(), "{} links for {} levels", machine.links.size(),
               program.widths.size());
  int64_t inner = 1;
  for (int32_t level = 0; level < transfer.first_level; ++level) inner *= program.widths[static_cast<size_t>(level)];
  return hop_seconds(
      transfer.hop,
      std::span(machine.links).subspan(static_cast<size_t>(transfer.first_level), transfer.hop.widths.size()), inner);
}

}  // namespace strata::simulate
