// Live ranges become offsets in one arena: persistent buffers in front, in the order in which they were declared, then
// everything of the step, placed by lives.

#include <algorithm>

#include "core/error.h"
#include "step/lowering.h"
#include "step/memory.h"
#include "step/place.h"

namespace strata::step {

namespace {

/// What a transfer was the last to use stays its own while others compute: else the next task to get these bytes would wait
/// for it. A gather's, until the task that it is for; a reduction's, for `overlap` computing tasks.
void outlive_transfers(const Program& program, std::vector<Interval>& all) {
  const auto tasks = static_cast<int64_t>(program.tasks.size());
  const auto computes = [&](int64_t t) { return program.block_of(program.tasks[static_cast<size_t>(t)]) != nullptr; };
  const auto uses = [&](int64_t t, BufferId owner) {
    const Slice list = program.tasks[static_cast<size_t>(t)].buffers;
    for (int32_t i = list.begin; i < list.end; ++i)
      if (program.owner(program.buffer_lists[static_cast<size_t>(i)]) == owner) return true;
    return false;
  };
  for (size_t b = 0; b < all.size(); ++b) {
    Interval& life = all[b];
    if (life.end < 0 || program.buffers[b].persistent() || computes(life.end)) continue;
    const Task& task = program.tasks[static_cast<size_t>(life.end)];
    const Transfer& transfer = std::get<Transfer>(task.work);
    const bool gather = brings_weights(transfer.purpose);
    const BufferId out =
        gather ? program.owner(program.buffer_lists[static_cast<size_t>(task.buffers.begin) + 1]) : BufferId{-1};
    int64_t until = life.end, passed = 0;
    // A gather is at most a few tasks ahead of its own; one into a secondary copy is for no task.
    // What is sent to another stage leaves when that one asks for it.
    const int64_t most = gather               ? std::max<int64_t>(program.overlap, 1) + program.prefetch
                         : transfer.message() ? std::max<int64_t>(program.overlap, 1)
                                              : program.overlap;
    while (passed < most && until + 1 < tasks) {
      ++until;
      if (!computes(until)) continue;
      ++passed;
      if (gather && uses(until, out)) break;
    }
    life.end = until;
  }
}

}  // namespace

std::vector<Interval> lives(const Program& program) {
  const auto tasks = static_cast<int64_t>(program.tasks.size());
  std::vector<Interval> result(program.buffers.size());
  for (size_t b = 0; b < program.buffers.size(); ++b) result[b] = {tasks, -1, program.buffers[b].bytes};
  for (int64_t t = 0; t < tasks; ++t) {
    const Task& task = program.tasks[static_cast<size_t>(t)];
    for (int32_t i = task.buffers.begin; i < task.buffers.end; ++i) {
      Interval& life = result[static_cast<size_t>(program.owner(program.buffer_lists[static_cast<size_t>(i)]))];
      life.begin = std::min(life.begin, t);
      life.end = std::max(life.end, t);
    }
  }
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    // The host fills inputs before the first task and reads results after the last.
    if (program.buffers[b].kind == BufferKind::input) result[b].begin = 0;
    const bool inspected = program.inspect && program.buffers[b].kind == BufferKind::gradients;
    if (program.buffers[b].kind == BufferKind::result || inspected) result[b].end = tasks - 1;
  }
  outlive_transfers(program, result);
  return result;
}

void place_memory(Program& program, int64_t front_bytes) {
  std::vector<Interval> all = lives(program);
  int64_t front = 0;
  std::vector<Interval> moving;
  std::vector<size_t> owner;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    Buffer& buffer = program.buffers[b];
    if (buffer.within >= 0) continue;  // follows its owner, below
    if (buffer.persistent()) {
      buffer.offset = front;
      front += round_up(buffer.bytes, device::alignment);
    } else {
      STRATA_CHECK(all[b].begin <= all[b].end, "a buffer that no task uses");
      moving.push_back(all[b]);
      owner.push_back(b);
    }
  }
  front = std::max(front, front_bytes);
  program.persistent_bytes = front;
  program.arena_bytes = front + place(moving);
  for (size_t i = 0; i < moving.size(); ++i) program.buffers[owner[i]].offset = front + moving[i].offset;
  for (Buffer& buffer : program.buffers)
    if (buffer.within >= 0) buffer.offset = program.buffers[static_cast<size_t>(buffer.within)].offset + buffer.begin;
}

MemoryPeak memory_peak(const Program& program) {
  const std::vector<Interval> all = lives(program);
  const auto tasks = static_cast<int64_t>(program.tasks.size());
  MemoryPeak peak;
  std::array<int64_t, buffer_kinds> persistent{};
  std::vector<std::vector<size_t>> starts(static_cast<size_t>(tasks)), ends(static_cast<size_t>(tasks));
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.within >= 0) continue;
    if (buffer.persistent()) {
      persistent[static_cast<size_t>(buffer.kind)] += round_up(buffer.bytes, device::alignment);
    } else {
      starts[static_cast<size_t>(all[b].begin)].push_back(b);
      ends[static_cast<size_t>(all[b].end)].push_back(b);
    }
  }
  std::array<int64_t, buffer_kinds> alive = persistent;
  int64_t most = -1;
  for (int64_t t = 0; t < tasks; ++t) {
    const auto change = [&](const std::vector<size_t>& list, int64_t sign) {
      for (size_t b : list)
        alive[static_cast<size_t>(program.buffers[b].kind)] +=
            sign * round_up(program.buffers[b].bytes, device::alignment);
    };
    change(starts[static_cast<size_t>(t)], 1);
    int64_t sum = 0;
    for (int64_t bytes : alive) sum += bytes;
    if (sum > most) most = sum, peak = {alive, sum, program.arena_bytes - sum, static_cast<TaskId>(t)};
    change(ends[static_cast<size_t>(t)], -1);
  }
  return peak;
}

}  // namespace strata::step
