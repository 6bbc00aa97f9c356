#include "simulate/schedule.h"

#include <algorithm>

#include "core/error.h"
#include "simulate/cost_model.h"
#include "step/traffic.h"

namespace strata::simulate {

std::vector<double> task_seconds(const machine::Machine& machine, const step::Program& program) {
  std::vector<double> blocks, hops, seconds;
  for (const step::Block& block : program.blocks) blocks.push_back(block_seconds(machine.device, block));
  const step::DistinctHops distinct = step::distinct_hops(program);
  for (const step::Transfer* each : distinct.hops) hops.push_back(transfer_seconds(machine, program, *each));
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const auto* compute = std::get_if<step::Compute>(&program.tasks[t].work);
    seconds.push_back(compute ? blocks[static_cast<size_t>(compute->block)]
                              : hops[static_cast<size_t>(distinct.of_task[t])]);
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

step::StepTime step_time(const machine::Machine& machine, const step::Program& program) {
  return step::step_time(program, schedule(program, task_seconds(machine, program)));
}

}  // namespace strata::simulate
