#include "simulate/cost_model.h"

#include <algorithm>

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

namespace {

/// A member's messages, by round and by level of the hop.
struct Loads {
  std::vector<std::vector<double>> bytes;  ///< [round][level]
};

Loads loads_of(const comm::Hop& hop, int64_t member) {
  const comm::Messages list = comm::messages(hop, member);
  Loads loads{{static_cast<size_t>(list.rounds), std::vector<double>(hop.widths.size())}};
  for (const comm::Message& message : list.sends)
    loads
        .bytes[static_cast<size_t>(message.round)][static_cast<size_t>(comm::crossed(hop, message.from, message.to))] +=
        static_cast<double>(message.bytes);
  return loads;
}

}  // namespace

double hop_seconds(const comm::Hop& hop, std::span<const machine::Link> links, int64_t inner) {
  STRATA_CHECK(links.size() == hop.widths.size());
  if (hop.members() == 1) return 0;
  const Loads loads = loads_of(hop, 0);
  double seconds = 0;
  if (hop.algorithm == comm::Algorithm::direct) {
    int64_t below = inner;
    for (size_t level = 0; level < links.size(); ++level) {
      double bytes = 0;
      for (const auto& round : loads.bytes) bytes += round[level];
      if (hop.widths[level] > 1) {
        // Two levels that share one link would add up; machine files give each level links of its own.
        const auto sharing = static_cast<double>(std::min(links[level].shared_by, below));
        seconds = std::max(seconds, links[level].latency + bytes * sharing / links[level].bandwidth);
      }
      below *= hop.widths[level];
    }
    return seconds;
  }
  for (const auto& round : loads.bytes) {
    double bytes = 0, slowest = 0;
    for (const double each : round) bytes += each;
    for (size_t level = 0; level < links.size(); ++level)
      if (hop.widths[level] > 1) {
        const auto sharing = static_cast<double>(std::min(links[level].shared_by, inner));
        slowest = std::max(slowest, links[level].latency + bytes * sharing / links[level].bandwidth);
      }
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
