// Which tasks of other streams a task must wait for. Nobody writes a dependency by hand: they follow from what tasks read and
// write, and from who had a buffer's bytes before it.

#include <algorithm>
#include <map>
#include <vector>

#include "step/lowering.h"

namespace strata::step {

namespace {

/// Which buffer was the last to use each byte of the arena.
class Occupants {
 public:
  /// Calls `before(buffer)` for each buffer that had some of these bytes, and gives them to `buffer`.
  void take(int64_t begin, int64_t end, BufferId buffer, const auto& before) {
    if (begin >= end) return;
    split(begin);
    split(end);
    auto at = spans_.lower_bound(begin);
    while (at != spans_.end() && at->first < end) {
      before(at->second.buffer);
      at = spans_.erase(at);
    }
    spans_[begin] = {end, buffer};
  }

 private:
  struct Span {
    int64_t end;
    BufferId buffer;
  };
  void split(int64_t where) {
    auto at = spans_.lower_bound(where);
    if (at == spans_.begin()) return;
    --at;
    if (at->second.end <= where) return;
    spans_[where] = at->second;
    at->second.end = where;
  }
  std::map<int64_t, Span> spans_;  // by begin
};

}  // namespace

void link(Program& program) {
  struct History {
    TaskId writer = -1;
    std::vector<TaskId> readers;  // since the last write
    bool seen = false;
  };
  std::vector<History> history(program.buffers.size());
  Occupants occupants;
  program.edges.clear();
  std::vector<TaskId> latest;  // by stream: a stream runs in order, so the last one waited for is enough
  for (TaskId id = 0; id < static_cast<TaskId>(program.tasks.size()); ++id) {
    Task& task = program.tasks[static_cast<size_t>(id)];
    std::fill(latest.begin(), latest.end(), -1);
    const auto wait_for = [&](TaskId other) {
      if (other < 0) return;
      const StreamId stream = program.tasks[static_cast<size_t>(other)].stream;
      if (stream == task.stream) return;
      if (latest.size() <= static_cast<size_t>(stream)) latest.resize(static_cast<size_t>(stream) + 1, -1);
      latest[static_cast<size_t>(stream)] = std::max(latest[static_cast<size_t>(stream)], other);
    };
    for (const Access& access : program.accesses(task)) {
      const BufferId owner = program.owner(access.buffer);
      History& h = history[static_cast<size_t>(owner)];
      const Buffer& buffer = program.buffers[static_cast<size_t>(owner)];
      if (!h.seen && !buffer.persistent()) {
        occupants.take(buffer.offset, buffer.offset + buffer.bytes, owner, [&](BufferId before) {
          const History& past = history[static_cast<size_t>(before)];
          wait_for(past.writer);
          for (TaskId reader : past.readers) wait_for(reader);
        });
      }
      h.seen = true;
      wait_for(h.writer);
      if (access.written) {
        for (TaskId reader : h.readers) wait_for(reader);
        h.writer = id;
        h.readers.clear();
      } else {
        h.readers.push_back(id);
      }
    }
    task.after.begin = static_cast<int32_t>(program.edges.size());
    for (TaskId other : latest)
      if (other >= 0) program.edges.push_back(other);
    std::sort(program.edges.begin() + task.after.begin, program.edges.end());
    task.after.end = static_cast<int32_t>(program.edges.size());
  }
}

}  // namespace strata::step
