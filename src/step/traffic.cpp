#include "step/traffic.h"

#include <algorithm>

#include "core/error.h"
#include "job/job.h"

namespace strata::step {

void Traffic::add(const Traffic& other, int64_t times) {
  for (const auto& [key, sent] : other.entries_) {
    comm::Sent& mine = entries_[key];
    mine.bytes += times * sent.bytes;
    mine.messages += times * sent.messages;
  }
}

void Traffic::clear() {
  for (auto& [key, sent] : entries_) sent = {};
}

int64_t Traffic::bytes(int32_t level) const {
  int64_t sum = 0;
  for (const auto& [key, sent] : entries_)
    if (key.level == level) sum += sent.bytes;
  return sum;
}

bool Traffic::operator==(const Traffic& other) const {
  const auto covers = [](const Traffic& a, const Traffic& b) {
    return std::all_of(a.entries_.begin(), a.entries_.end(), [&](const auto& entry) {
      const auto found = b.entries_.find(entry.first);
      return (found == b.entries_.end() ? comm::Sent{} : found->second) == entry.second;
    });
  };
  return covers(*this, other) && covers(other, *this);
}

std::string wire_name(const device::Wire& wire) {
  // Floating-point types as configs spell them.
  const bool spelled = wire.kind == device::WireKind::raw && (wire.dtype == DType::f32 || wire.dtype == DType::f16);
  return std::string(spelled ? job::precision_name(wire.dtype) : device::name_of(wire));
}

std::vector<int64_t> members_of(const Program& program, const Transfer& transfer) {
  return layout::group(program.widths, program.rank, transfer.first_level, transfer.last_level);
}

int64_t member_of(const Program& program, const Transfer& transfer) {
  const std::vector<int64_t> ranks = members_of(program, transfer);
  return std::find(ranks.begin(), ranks.end(), program.rank) - ranks.begin();
}

Traffic traffic(const Program& program, std::optional<int32_t> micro_batch) {
  Traffic result;
  // Equal hops of many units and micro-batches are listed once.
  std::vector<std::pair<const Transfer*, std::vector<comm::Sent>>> known;
  for (const Task& task : program.tasks) {
    const auto* transfer = std::get_if<Transfer>(&task.work);
    if (!transfer || (micro_batch && task.micro_batch != *micro_batch)) continue;
    auto found = std::find_if(known.begin(), known.end(), [&](const auto& k) {
      return k.first->first_level == transfer->first_level && k.first->hop == transfer->hop;
    });
    if (found == known.end()) {
      known.emplace_back(transfer, comm::sent_by(transfer->hop, member_of(program, *transfer)));
      found = known.end() - 1;
    }
    for (size_t level = 0; level < found->second.size(); ++level) {
      const comm::Sent& sent = found->second[level];
      if (sent.messages == 0) continue;
      comm::Sent& sum = result.at(
          {transfer->first_level + static_cast<int32_t>(level), transfer->purpose, wire_name(transfer->hop.wire)});
      sum.bytes += sent.bytes;
      sum.messages += sent.messages;
    }
  }
  return result;
}

}  // namespace strata::step
