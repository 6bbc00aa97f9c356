#include "step/timeline.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "step/traffic.h"

namespace strata::step {

static_assert(std::is_trivially_copyable_v<TaskLabel> && std::is_trivially_copyable_v<Span>);

namespace {

template <size_t size>
void put(std::array<char, size>& out, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), size - 1), out.begin());
}

/// "forward" of "layer/forward"; "backward" of "layer/backward first", which differs in how it begins its sums.
std::string verb_of(const std::string& block) {
  std::string verb = block.substr(block.find('/') + 1);
  return verb.substr(0, verb.find(' '));
}

}  // namespace

std::vector<TaskLabel> task_labels(const Program& program) {
  const DistinctHops distinct = distinct_hops(program);
  std::vector<comm::Sent> sent_in;
  for (const Transfer* each : distinct.hops) {
    comm::Sent& all = sent_in.emplace_back();
    for (const comm::Sent& sent : comm::sent_by(each->hop, member_of(program, *each)))
      all.bytes += sent.bytes, all.messages += sent.messages;
  }
  std::vector<TaskLabel> labels;
  for (const Task& task : program.tasks) {
    TaskLabel& label = labels.emplace_back();
    label.micro_batch = task.micro_batch;
    if (const auto* compute = std::get_if<Compute>(&task.work)) {
      const std::string& block = program.block_of(task)->name;
      label.unit = compute->unit;
      put(label.name,
          label.unit < 0 ? block : program.units[static_cast<size_t>(label.unit)].name + ' ' + verb_of(block));
      continue;
    }
    const auto& transfer = std::get<Transfer>(task.work);
    label.unit = transfer.unit;
    label.first_level = transfer.first_level;
    label.last_level = transfer.last_level;
    label.sequence = transfer.sequence;
    std::string name = std::string(name_of(transfer.hop.collective)) + ' ' + std::string(name_of(transfer.purpose));
    if (label.unit >= 0) name += ' ' + program.units[static_cast<size_t>(label.unit)].name;
    put(label.name, name);
    put(label.wire, wire_name(transfer.hop.wire));
    const comm::Sent& sent = sent_in[static_cast<size_t>(distinct.of_task[labels.size() - 1])];
    label.bytes = sent.bytes;
    label.messages = sent.messages;
  }
  return labels;
}

}  // namespace strata::step
