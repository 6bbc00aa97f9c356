#include "execute/transfers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "comm/idle.h"
#include "core/error.h"
#include "core/random.h"

namespace strata::execute {

using Clock = std::chrono::steady_clock;
using step::StreamId;
using step::TaskId;

Transfers::Transfers(const step::Program& program, device::Device& device, device::Address arena, const Peers& peers,
                     step::Timeline& timeline)
    : program_(program), device_(device), peers_(peers), timeline_(timeline), planned_(program.tasks.size()) {
  const step::DistinctHops distinct = step::distinct_hops(program);
  // Equal transfers of one stream share a walk: they come one at a time.
  std::map<std::pair<int32_t, StreamId>, comm::HopRun*> walks;
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const step::Task& task = program.tasks[t];
    const auto stream = static_cast<size_t>(task.stream);
    if (streams_.size() <= stream) streams_.resize(stream + 1);
    const auto* transfer = std::get_if<step::Transfer>(&task.work);
    if (!transfer) continue;
    streams_[stream].tasks.push_back(static_cast<TaskId>(t));
    Planned& planned = planned_[t];
    comm::HopRun*& walk = walks[{distinct.of_task[t], task.stream}];
    if (!walk) {
      runs_.push_back(std::make_unique<comm::HopRun>(transfer->hop, step::members_of(program, *transfer),
                                                     step::member_of(program, *transfer)));
      walk = runs_.back().get();
    }
    planned.run = walk;
    const auto address = [&](int32_t position) {
      const step::BufferId id = program.buffer_lists[static_cast<size_t>(task.buffers.begin + position)];
      return arena + program.buffers[static_cast<size_t>(id)].offset;
    };
    planned.buffers.in = address(0);
    planned.buffers.out = address(transfer->message() ? 0 : 1);
    if (transfer->staged) planned.buffers.staging = address(2);
    if (transfer->feedback) planned.buffers.error = address(transfer->staged ? 3 : 2);
    for (size_t level = 0; level < transfer->hop.widths.size(); ++level)
      planned.ledger.push_back(&sent_.at({transfer->first_level + static_cast<int32_t>(level), transfer->purpose,
                                          step::wire_name(transfer->hop.wire)}));
  }
  completed_ = std::vector<std::atomic<TaskId>>(streams_.size());

  std::vector<StreamId> used;
  for (size_t s = 1; s < streams_.size(); ++s)
    if (!streams_[s].tasks.empty()) used.push_back(static_cast<StreamId>(s));
  if (peers.thread_a_level)
    for (StreamId stream : used) workers_.push_back({{stream}, {}});
  else
    workers_.push_back({used, {}});
  for (Worker& worker : workers_) worker.thread = std::thread([this, &worker] { work(worker); });
}

Transfers::~Transfers() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    failed_ = true;
  }
  changed_.notify_all();
  for (Worker& worker : workers_) worker.thread.join();
}

double Transfers::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Transfers::changed() {
  if (waiting_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void Transfers::begin(Clock::time_point start, uint64_t noise) {
  {
    const std::lock_guard lock(mutex_);
    for (std::atomic<TaskId>& completed : completed_) completed = -1;
    start_ = start;
    noise_ = noise;
    finished_ = 0;
    ++run_;
  }
  changed_.notify_all();
}

bool Transfers::ready(const step::Task& task) const {
  for (int32_t e = task.after.begin; e < task.after.end; ++e) {
    const TaskId before = program_.edges[static_cast<size_t>(e)];
    const StreamId stream = program_.tasks[static_cast<size_t>(before)].stream;
    if (completed_[static_cast<size_t>(stream)].load() < before) return false;
  }
  return true;
}

void Transfers::wait_before(const step::Task& task) {
  if (!ready(task) && !failed_) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait(lock, [&] { return ready(task) || failed_; });
    --waiting_;
  }
  if (failed_) std::rethrow_exception(error_);
}

void Transfers::computed(TaskId task) {
  completed_[0].store(task);
  changed();
}

void Transfers::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ == workers_.size() || failed_; });
  if (failed_) std::rethrow_exception(error_);
}

void Transfers::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
  }
  changed_.notify_all();
}

void Transfers::work(const Worker& worker) {
  int64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || run_ != seen; });
      if (ending_) return;
      seen = run_;
    }
    try {
      drive(worker);
    } catch (...) {
      fail(std::current_exception());
    }
    {
      const std::lock_guard lock(mutex_);
      ++finished_;
    }
    changed_.notify_all();
  }
}

void Transfers::drive(const Worker& worker) {
  for (StreamId id : worker.streams) {
    Stream& stream = streams_[static_cast<size_t>(id)];
    stream.next = 0;
    stream.active = false;
  }
  comm::Idle idle;
  while (!failed_) {
    bool moved = false, active = false, open = false;
    peers_.transport->poll();
    for (StreamId id : worker.streams) {
      Stream& stream = streams_[static_cast<size_t>(id)];
      if (stream.next == stream.tasks.size()) continue;
      moved |= advance(id);
      active |= stream.active;
      open |= stream.next < stream.tasks.size();
    }
    if (!open) return;
    if (moved) {
      idle.reset();
    } else if (active) {
      idle.pause();
    } else {
      // Nothing to do before other tasks are done.
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.wait(lock, [&] {
        return failed_ || std::any_of(worker.streams.begin(), worker.streams.end(), [&](StreamId id) {
                 const Stream& stream = streams_[static_cast<size_t>(id)];
                 return stream.next < stream.tasks.size() &&
                        ready(program_.tasks[static_cast<size_t>(stream.tasks[stream.next])]);
               });
      });
      --waiting_;
    }
  }
}

bool Transfers::advance(StreamId id) {
  Stream& stream = streams_[static_cast<size_t>(id)];
  const TaskId task = stream.tasks[stream.next];
  bool moved = false;
  if (!stream.active) {
    if (!ready(program_.tasks[static_cast<size_t>(task)])) return false;
    start(task);
    stream.active = moved = true;
    stream.moved = Clock::now();
  }
  Planned& planned = planned_[static_cast<size_t>(task)];
  if (planned.run->advance()) {
    {
      const std::lock_guard lock(ledger_);
      for (size_t level = 0; level < planned.ledger.size(); ++level) {
        planned.ledger[level]->bytes += planned.run->sent()[level].bytes;
        planned.ledger[level]->messages += planned.run->sent()[level].messages;
      }
    }
    timeline_[static_cast<size_t>(task)].end = seconds();
    stream.active = false;
    ++stream.next;
    completed_[static_cast<size_t>(id)].store(task);
    changed();
    return true;
  }
  if (planned.run->moved())
    stream.moved = Clock::now(), moved = true;
  else if (std::chrono::duration<double>(Clock::now() - stream.moved).count() > peers_.timeout)
    give_up(task);
  return moved;
}

void Transfers::start(TaskId id) {
  const step::Task& task = program_.tasks[static_cast<size_t>(id)];
  const step::Transfer& transfer = std::get<step::Transfer>(task.work);
  timeline_[static_cast<size_t>(id)] = {id, task.stream, seconds(), 0};
  const Planned& planned = planned_[static_cast<size_t>(id)];
  // Each sender, transfer and step draws its own noise, by element of the unit's vector.
  device::Noise noise;
  const bool draws = transfer.hop.wire.stochastic;
  if (draws) {
    const Random4 random =
        philox(noise_, static_cast<uint64_t>(transfer.sequence), static_cast<uint64_t>(program_.rank));
    noise = {uint64_t{random[0]} << 32 | random[1], transfer.first};
  }
  planned.run->begin(*peers_.transport, device_, planned.buffers, step::tag_of(transfer), noise, transfer.accumulate);
}

void Transfers::give_up(TaskId id) {
  const step::Task& task = program_.tasks[static_cast<size_t>(id)];
  const step::Transfer& transfer = std::get<step::Transfer>(task.work);
  std::vector<std::string> levels(program_.level_names.begin() + transfer.first_level,
                                  program_.level_names.begin() + transfer.last_level);
  const std::vector<int64_t> missing = planned_[static_cast<size_t>(id)].run->waiting_for();
  throw run_error(
      "rank {}: {} of {}{}{} over {}, sequence {}: no word from rank{} {} for {:g} s (run.timeout). They have ended, "
      "stopped, or wait for others: look at their logs",
      program_.rank, name_of(transfer.hop.collective), step::name_of(transfer.purpose),
      transfer.unit >= 0 ? " of " + program_.units[static_cast<size_t>(transfer.unit)].name : "",
      task.micro_batch >= 0 ? fmt::format(", micro-batch {},", task.micro_batch) : "", fmt::join(levels, "+"),
      transfer.sequence, missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), peers_.timeout);
}

}  // namespace strata::execute
