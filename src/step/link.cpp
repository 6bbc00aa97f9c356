#include <algorithm>
#include <vector>

#include "step/lowering.h"

namespace strata::step {

void link(Program& program) {
  struct History {
    TaskId writer = -1;
    std::vector<TaskId> readers;  // since the last write
  };
  std::vector<History> history(program.buffers.size());
  for (TaskId id = 0; id < static_cast<TaskId>(program.tasks.size()); ++id) {
    Task& task = program.tasks[static_cast<size_t>(id)];
    std::vector<TaskId> after;
    const auto wait_for = [&](TaskId other) {
      if (other >= 0 && program.tasks[static_cast<size_t>(other)].stream != task.stream) after.push_back(other);
    };
    for (const Access& access : program.accesses(task)) {
      History& h = history[static_cast<size_t>(program.owner(access.buffer))];
      wait_for(h.writer);
      if (access.written) {
        for (TaskId reader : h.readers) wait_for(reader);
        h = {id, {}};
      } else {
        h.readers.push_back(id);
      }
    }
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    task.after.begin = static_cast<int32_t>(program.edges.size());
    program.edges.insert(program.edges.end(), after.begin(), after.end());
    task.after.end = static_cast<int32_t>(program.edges.size());
  }
}

}  // namespace strata::step
