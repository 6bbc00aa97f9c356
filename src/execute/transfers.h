#pragma once
// A program's transfers: one logical stream a level, driven by one thread (or a thread a level) beside the one that computes.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/hop_run.h"
#include "comm/transport.h"
#include "device/device.h"
#include "step/program.h"
#include "step/timeline.h"
#include "step/traffic.h"

namespace strata::execute {

/// What a rank reaches others with. Outlives the executors that are given it.
struct Peers {
  comm::Transport* transport = nullptr;  ///< null: there are none
  double timeout = 600;                  ///< seconds without a word after which a transfer is given up
  bool thread_a_level = false;           ///< the transport's methods may then be called from several threads at a time
};

class Transfers {
 public:
  /// Prepares every transfer and starts the threads, which sleep between runs.
  Transfers(const step::Program& program, device::Device& device, device::Address arena, const Peers& peers,
            step::Timeline& timeline);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// A run begins, its spans counted from `start`. `noise`: key of what stochastic wires draw.
  void begin(std::chrono::steady_clock::time_point start, uint64_t noise);
  /// Waits, on the computing thread, until all that the task must wait for is done. Throws what a transfer threw.
  void wait_before(const step::Task& task);
  /// The computing thread has done this task.
  void computed(step::TaskId task);
  /// Waits until every transfer is done.
  void finish();

  /// What has been sent, counted at the send, since construction.
  const step::Traffic& sent() const { return sent_; }

 private:
  struct Planned {
    comm::HopRun* run = nullptr;  ///< shared by equal transfers
    comm::HopRun::Buffers buffers;
    std::vector<comm::Sent*> ledger;  ///< by level of the hop
  };
  struct Stream {
    std::vector<step::TaskId> tasks;
    size_t next = 0;
    bool active = false;
    std::chrono::steady_clock::time_point moved;  ///< when the active one last got anything done
  };
  struct Worker {
    std::vector<step::StreamId> streams;
    std::thread thread;
  };

  bool ready(const step::Task& task) const;
  void work(const Worker& worker);
  void drive(const Worker& worker);
  bool advance(step::StreamId id);
  void start(step::TaskId id);
  void done(step::StreamId stream, step::TaskId task);
  void fail(std::exception_ptr error);
  [[noreturn]] void give_up(step::TaskId id);
  void changed();
  double seconds() const;

  const step::Program& program_;
  device::Device& device_;
  Peers peers_;
  step::Timeline& timeline_;
  std::vector<std::unique_ptr<comm::HopRun>> runs_;
  std::vector<Planned> planned_;  ///< by task
  std::vector<Stream> streams_;
  std::vector<Worker> workers_;
  step::Traffic sent_;
  std::mutex ledger_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> waiting_ = 0;
  std::vector<std::atomic<step::TaskId>> completed_;  ///< by stream: its last task that is done
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
  int64_t run_ = 0;      ///< under mutex_: number of the run that workers should be in
  size_t finished_ = 0;  ///< under mutex_: workers that are done with it
  bool ending_ = false;
  std::chrono::steady_clock::time_point start_;
  uint64_t noise_ = 0;
};

}  // namespace strata::execute
