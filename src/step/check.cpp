#include "step/check.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "device/device.h"
#include "step/memory.h"

namespace strata::step {

namespace {

void no_read_before_write(const Program& program) {
  std::vector<bool> written(program.buffers.size());
  for (size_t b = 0; b < program.buffers.size(); ++b)
    written[b] = program.buffers[b].persistent() || program.buffers[b].kind == BufferKind::input;
  for (const Task& task : program.tasks) {
    const Block* block = program.block_of(task);
    const std::vector<Access> accesses = program.accesses(task);
    STRATA_CHECK(!block || accesses.size() == block->formals.size());
    for (size_t i = 0; i < accesses.size(); ++i) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(accesses[i].buffer)];
      STRATA_CHECK(!block || block->formals[i].bytes <= buffer.bytes, "{}: formal {}", block->name,
                   ops::name_of(block->formals[i].role));
      STRATA_CHECK(!accesses[i].read || written[static_cast<size_t>(program.owner(accesses[i].buffer))],
                   "{} of micro-batch {} reads {} before it is written", block ? block->name : "a transfer",
                   task.micro_batch, ops::name_of(buffer.role));
    }
    for (const Access& access : accesses)
      if (access.written) written[static_cast<size_t>(program.owner(access.buffer))] = true;
  }
}

/// Sweeps over tasks with the buffers alive sorted by offset: neighbours must not overlap.
void no_overlap(const Program& program) {
  const std::vector<Interval> all = lives(program);
  struct Event {
    int64_t at;
    bool starts;
    size_t buffer;
  };
  std::vector<Event> events;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.within >= 0) {
      const Buffer& owner = program.buffers[static_cast<size_t>(buffer.within)];
      STRATA_CHECK(owner.within < 0 && buffer.begin >= 0 && buffer.begin + buffer.bytes <= owner.bytes);
      STRATA_CHECK(buffer.offset == owner.offset + buffer.begin);
      continue;
    }
    STRATA_CHECK(buffer.offset >= 0 && buffer.offset % device::alignment == 0);
    STRATA_CHECK(buffer.offset + buffer.bytes <= program.arena_bytes);
    if (buffer.persistent()) {
      STRATA_CHECK(buffer.offset + buffer.bytes <= program.persistent_bytes);
      continue;
    }
    STRATA_CHECK(buffer.offset >= program.persistent_bytes);
    if (buffer.bytes == 0) continue;
    events.push_back({all[b].begin, true, b});
    events.push_back({all[b].end + 1, false, b});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.starts < b.starts;  // ends before starts
  });
  std::vector<size_t> alive;
  const auto position = [&](size_t b) {
    return std::lower_bound(alive.begin(), alive.end(), program.buffers[b].offset,
                            [&](size_t other, int64_t offset) { return program.buffers[other].offset < offset; });
  };
  for (const Event& event : events) {
    const auto at = position(event.buffer);
    const Buffer& buffer = program.buffers[event.buffer];
    if (!event.starts) {
      alive.erase(at);
      continue;
    }
    const bool clear_above = at == alive.end() || buffer.offset + buffer.bytes <= program.buffers[*at].offset;
    const bool clear_below =
        at == alive.begin() || program.buffers[*(at - 1)].offset + program.buffers[*(at - 1)].bytes <= buffer.offset;
    STRATA_CHECK(clear_above && clear_below, "buffers overlap in the arena");
    alive.insert(at, event.buffer);
  }
}

void no_backward_edge(const Program& program) {
  for (TaskId id = 0; id < static_cast<TaskId>(program.tasks.size()); ++id) {
    const Slice after = program.tasks[static_cast<size_t>(id)].after;
    for (int32_t e = after.begin; e < after.end; ++e) STRATA_CHECK(program.edges[static_cast<size_t>(e)] < id);
  }
}

}  // namespace

void check(const Program& program) {
  no_read_before_write(program);
  no_overlap(program);
  no_backward_edge(program);
}

}  // namespace strata::step
