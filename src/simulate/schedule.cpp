#include "simulate/schedule.h"

#include <algorithm>

#include "core/error.h"
#include "simulate/cost_model.h"

namespace strata::simulate {

std::vector<double> task_seconds(const machine::Machine& machine, const step::Program& program) {
  std::vector<double> blocks;
  for (const step::Block& block : program.blocks) blocks.push_back(block_seconds(machine.device, block));
  // Equal hops of many units and micro-batches are priced once.
  std::vector<std::pair<const step::Transfer*, double>> known;
  std::vector<double> seconds;
  for (const step::Task& task : program.tasks) {
    if (const auto* compute = std::get_if<step::Compute>(&task.work)) {
      seconds.push_back(blocks[static_cast<size_t>(compute->block)]);
      continue;
    }
    const auto& transfer = std::get<step::Transfer>(task.work);
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& each) {
      return each.first->first_level == transfer.first_level && each.first->hop == transfer.hop;
    });
    seconds.push_back(found != known.end() ? found->second : transfer_seconds(machine, program, transfer));
    if (found == known.end()) known.emplace_back(&transfer, seconds.back());
  }
  return seconds;
}

step::Timeline schedule(const step::Program& program, const std::vector<double>& seconds) {
  STRATA_CHECK(seconds.size() == program.tasks.size());
  step::Timeline timeline;
  timeline.reserve(program.tasks.size());
  std::vector<double> free;  // by stream: when its last task ends
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const step::Task& task = program.tasks[t];
    const auto stream = static_cast<size_t>(task.stream);
    if (free.size() <= stream) free.resize(stream + 1);
    double begin = free[stream];
    for (int32_t e = task.after.begin; e < task.after.end; ++e)
      begin = std::max(begin, timeline[static_cast<size_t>(program.edges[static_cast<size_t>(e)])].end);
    free[stream] = begin + seconds[t];
    timeline.push_back({static_cast<step::TaskId>(t), task.stream, begin, free[stream]});
  }
  return timeline;
}

}  // namespace strata::simulate
