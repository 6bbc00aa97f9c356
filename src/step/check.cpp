#include "step/check.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "device/device.h"
#include "step/memory.h"
#include "step/traffic.h"

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

/// All ranks' streams, each task when all it waits for is done; a transfer when every rank that takes part has come to it.
class Together {
 public:
  explicit Together(std::span<const Program> programs) : programs_(programs) {
    for (const Program& program : programs) {
      Rank& rank = ranks_.emplace_back();
      rank.streams.resize(program.stream_names.size());
      rank.next.resize(program.stream_names.size());
      rank.done.resize(program.tasks.size());
      for (TaskId t = 0; t < static_cast<TaskId>(program.tasks.size()); ++t)
        rank.streams[static_cast<size_t>(program.tasks[static_cast<size_t>(t)].stream)].push_back(t);
    }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < ranks_.size(); ++r)
        for (size_t s = 0; s < ranks_[r].streams.size(); ++s)
          while (advance(r, s)) moved = true;
    }
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (size_t s = 0; s < ranks_[r].streams.size(); ++s)
        STRATA_CHECK(ranks_[r].next[s] == ranks_[r].streams[s].size(),
                     "rank {} waits for ever in stream {} before task {}", programs_[r].rank,
                     programs_[r].stream_names[s], ranks_[r].streams[s][ranks_[r].next[s]]);
  }

 private:
  struct Rank {
    std::vector<std::vector<TaskId>> streams;
    std::vector<size_t> next;
    std::vector<bool> done;
  };

  const Task& task(size_t r, TaskId t) const { return programs_[r].tasks[static_cast<size_t>(t)]; }

  bool ready(size_t r, TaskId t) const {
    const Slice after = task(r, t).after;
    for (int32_t e = after.begin; e < after.end; ++e)
      if (!ranks_[r].done[static_cast<size_t>(programs_[r].edges[static_cast<size_t>(e)])]) return false;
    return true;
  }

  /// The stream of another rank that is ready for its side of a transfer; -1: none is yet.
  int other_side(size_t r, const Transfer& transfer) const {
    for (size_t s = 0; s < ranks_[r].streams.size(); ++s) {
      if (ranks_[r].next[s] == ranks_[r].streams[s].size()) continue;
      const TaskId t = ranks_[r].streams[s][ranks_[r].next[s]];
      const auto* theirs = std::get_if<Transfer>(&task(r, t).work);
      if (!theirs || theirs->axis != layout::Axis::pipeline || theirs->ends != transfer.ends ||
          theirs->purpose != transfer.purpose || theirs->first_level != transfer.first_level || !ready(r, t))
        continue;
      STRATA_CHECK(theirs->sequence == transfer.sequence && theirs->hop == transfer.hop,
                   "rank {}: {} number {} meets number {} of another stage", programs_[r].rank,
                   name_of(transfer.purpose), theirs->sequence, transfer.sequence);
      return static_cast<int>(s);
    }
    return -1;
  }

  bool advance(size_t r, size_t s) {
    Rank& rank = ranks_[r];
    if (rank.next[s] == rank.streams[s].size()) return false;
    const TaskId t = rank.streams[s][rank.next[s]];
    if (!ready(r, t)) return false;
    const auto* transfer = std::get_if<Transfer>(&task(r, t).work);
    std::vector<std::pair<size_t, size_t>> sides = {{r, s}};
    if (transfer && transfer->axis == layout::Axis::pipeline)
      for (const int64_t member : members_of(programs_[r], *transfer)) {
        if (member == programs_[r].rank) continue;
        size_t other = 0;
        while (other < programs_.size() && programs_[other].rank != member) ++other;
        if (other == programs_.size()) continue;
        const int stream = other_side(other, *transfer);
        if (stream < 0) return false;
        sides.emplace_back(other, static_cast<size_t>(stream));
      }
    for (const auto& [who, stream] : sides) {
      Rank& each = ranks_[who];
      each.done[static_cast<size_t>(each.streams[stream][each.next[stream]++])] = true;
    }
    return true;
  }

  std::span<const Program> programs_;
  std::vector<Rank> ranks_;
};

}  // namespace

void check_together(std::span<const Program> programs) { Together(programs).run(); }

void check(const Program& program) {
  no_read_before_write(program);
  no_overlap(program);
  no_backward_edge(program);
}

}  // namespace strata::step
