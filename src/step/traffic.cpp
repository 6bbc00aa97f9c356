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
  if (transfer.message()) return {transfer.ends.begin(), transfer.ends.end()};
  return program.mesh.group(program.rank, transfer.axis, transfer.first_level, transfer.last_level);
}

int64_t member_of(const Program& program, const Transfer& transfer) {
  const std::vector<int64_t> ranks = members_of(program, transfer);
  return std::find(ranks.begin(), ranks.end(), program.rank) - ranks.begin();
}

DistinctHops distinct_hops(const Program& program) {
  DistinctHops result;
  for (const Task& task : program.tasks) {
    const auto* transfer = std::get_if<Transfer>(&task.work);
    result.of_task.push_back(-1);
    if (!transfer) continue;
    const auto found = std::find_if(result.hops.begin(), result.hops.end(), [&](const Transfer* known) {
      return known->first_level == transfer->first_level && known->axis == transfer->axis &&
             known->ends == transfer->ends && known->hop == transfer->hop;
    });
    result.of_task.back() = static_cast<int32_t>(found - result.hops.begin());
    if (found == result.hops.end()) result.hops.push_back(transfer);
  }
  return result;
}

Traffic traffic(const Program& program, std::optional<int32_t> micro_batch) {
  Traffic result;
  const DistinctHops distinct = distinct_hops(program);
  std::vector<std::vector<comm::Sent>> sent_in;
  for (const Transfer* each : distinct.hops) sent_in.push_back(comm::sent_by(each->hop, member_of(program, *each)));
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const Task& task = program.tasks[t];
    const auto* transfer = std::get_if<Transfer>(&task.work);
    if (!transfer || (micro_batch && task.micro_batch != *micro_batch)) continue;
    const std::vector<comm::Sent>& levels = sent_in[static_cast<size_t>(distinct.of_task[t])];
    for (size_t level = 0; level < levels.size(); ++level) {
      if (levels[level].messages == 0) continue;
      comm::Sent& sum = result.at(
          {transfer->first_level + static_cast<int32_t>(level), transfer->purpose, wire_name(transfer->hop.wire)});
      sum.bytes += levels[level].bytes;
      sum.messages += levels[level].messages;
    }
  }
  return result;
}

}  // namespace strata::step
