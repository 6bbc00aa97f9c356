// Gathers of weights move earlier, past the tasks of the units before: they then overlap with those. Adds nothing.

#include <algorithm>
#include <numeric>
#include <vector>

#include "step/lowering.h"

namespace strata::step {

namespace {

bool brings_weights(const Task& task) {
  const auto* transfer = std::get_if<Transfer>(&task.work);
  return transfer && brings_weights(transfer->purpose);
}

}  // namespace

void prefetch(Program& program, int64_t depth, int64_t bytes) {
  if (depth == 0) return;
  // Computing tasks are numbered; a gather belongs to the next one after it, and moves before an earlier one.
  std::vector<int64_t> position(program.tasks.size());
  std::vector<int64_t> gathered;  // by computing task: bytes that are gathered for it
  int64_t next = 0;
  gathered.push_back(0);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const Task& task = program.tasks[t];
    position[t] = next;
    if (program.block_of(task)) {
      ++next;
      gathered.push_back(0);
    } else if (brings_weights(task)) {
      const BufferId out = program.buffer_lists[static_cast<size_t>(task.buffers.begin) + 1];
      const Buffer& owner = program.buffers[static_cast<size_t>(program.owner(out))];
      if (owner.kind == BufferKind::gathered_weights && gathered.back() < owner.bytes) gathered.back() = owner.bytes;
    }
  }
  std::vector<int64_t> target(static_cast<size_t>(next) + 1);
  for (int64_t task = 0; task <= next; ++task) {
    int64_t to = task, held = gathered[static_cast<size_t>(task)];
    while (to > 0 && task - to < depth) {
      held += gathered[static_cast<size_t>(to) - 1];
      if (bytes > 0 && held > bytes) break;
      --to;
    }
    // Gathers keep their order.
    target[static_cast<size_t>(task)] = task == 0 ? to : std::max(to, target[static_cast<size_t>(task) - 1]);
  }
  std::vector<size_t> order(program.tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t t) {
    const bool moves = brings_weights(program.tasks[t]);
    const int64_t at = moves ? target[static_cast<size_t>(position[t])] : position[t];
    return 2 * at + (moves ? 0 : 1);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  std::vector<Task> tasks;
  tasks.reserve(order.size());
  for (size_t t : order) tasks.push_back(std::move(program.tasks[t]));
  program.tasks = std::move(tasks);
}

}  // namespace strata::step
