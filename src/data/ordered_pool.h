#pragma once
// Work on many things at once whose results come out in the order in which they went in.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace strata::data {

/// `work` runs on the threads, on one job each at a time. What it throws comes out of `next` in that job's turn, so which
/// error is seen does not depend on the number of threads. One thread submits and takes.
template <typename Job>
class OrderedPool {
 public:
  OrderedPool(int threads, std::function<void(Job&)> work) : work_(std::move(work)) {
    // Where the system gives no more threads, those that there are do the work.
    for (int i = 0; i < threads; ++i) try {
        threads_.emplace_back([this] { run(); });
      } catch (const std::system_error& error) {
        if (i == 0) throw run_error("cannot start a thread: {}", error.what());
        break;
      }
  }
  OrderedPool(const OrderedPool&) = delete;
  OrderedPool& operator=(const OrderedPool&) = delete;
  /// Waits for the jobs that are being worked on; the others are dropped.
  ~OrderedPool() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    waiting_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(std::unique_ptr<Job> job) {
    {
      const std::lock_guard lock(mutex_);
      slots_.push_back(std::make_unique<Slot>(Slot{std::move(job), nullptr, false}));
      todo_.push_back(slots_.back().get());
    }
    waiting_.notify_one();
  }

  /// Jobs submitted and not taken.
  size_t pending() const { return slots_.size(); }

  /// The oldest of them, once it is done.
  std::unique_ptr<Job> next() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return slots_.front()->done; });
    const std::unique_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    lock.unlock();
    if (slot->error) std::rethrow_exception(slot->error);
    return std::move(slot->job);
  }

 private:
  struct Slot {
    std::unique_ptr<Job> job;
    std::exception_ptr error;
    bool done = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      waiting_.wait(lock, [this] { return closing_ || !todo_.empty(); });
      if (closing_) return;
      Slot* slot = todo_.front();
      todo_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        work_(*slot->job);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot->error = error;
      slot->done = true;
      done_.notify_one();
    }
  }

  std::function<void(Job&)> work_;
  std::mutex mutex_;
  std::condition_variable waiting_, done_;
  std::deque<std::unique_ptr<Slot>> slots_;
  std::deque<Slot*> todo_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace strata::data
