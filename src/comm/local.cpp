#include "comm/local.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace strata::comm {

namespace {

constexpr size_t at_once = 4096;  ///< messages under way of one rank

/// One end of a message that waits for the other.
struct End {
  int32_t tag;
  uintptr_t memory;
  int64_t bytes;
  std::atomic<bool>* done;
};

}  // namespace

/// What one rank sends another. The end that comes second moves the bytes.
struct LocalWorld::Channel {
  std::mutex mutex;
  std::vector<End> sends, receives;

  Channel() {
    sends.reserve(64);
    receives.reserve(64);
  }

  void meet(const End& end, bool sends_it) {
    const std::lock_guard lock(mutex);
    std::vector<End>& others = sends_it ? receives : sends;
    for (auto other = others.begin(); other != others.end(); ++other) {
      if (other->tag != end.tag) continue;
      STRATA_CHECK(other->bytes == end.bytes, "a message of {} bytes meets a receive of {}",
                   sends_it ? end.bytes : other->bytes, sends_it ? other->bytes : end.bytes);
      const uintptr_t from = sends_it ? end.memory : other->memory, to = sends_it ? other->memory : end.memory;
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), static_cast<size_t>(end.bytes));
      other->done->store(true, std::memory_order_release);
      end.done->store(true, std::memory_order_release);
      others.erase(other);
      return;
    }
    (sends_it ? sends : receives).push_back(end);
  }
};

class LocalWorld::Rank final : public Transport {
 public:
  Rank(LocalWorld& world, int64_t rank) : world_(world), rank_(rank), done_(at_once), used_(at_once) {}
  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return world_.ranks(); }

  Ticket send(int64_t to, int32_t tag, device::Address from, int64_t bytes) override {
    return begin(*world_.channels_[static_cast<size_t>(rank_ * ranks() + to)], tag, from, bytes, true);
  }
  Ticket receive(int64_t from, int32_t tag, device::Address to, int64_t bytes) override {
    return begin(*world_.channels_[static_cast<size_t>(from * ranks() + rank_)], tag, to, bytes, false);
  }
  void poll() override {}  // whoever comes second has moved the bytes
  bool done(Ticket ticket) override {
    const auto slot = static_cast<size_t>(ticket);
    STRATA_CHECK(used_[slot]);
    if (!done_[slot].load(std::memory_order_acquire)) return false;
    used_[slot] = false;
    return true;
  }

 private:
  Ticket begin(Channel& channel, int32_t tag, device::Address memory, int64_t bytes, bool sends_it) {
    size_t slot = next_;
    while (used_[slot]) {
      slot = (slot + 1) % at_once;
      STRATA_CHECK(slot != next_, "too many messages under way");
    }
    next_ = (slot + 1) % at_once;
    used_[slot] = true;
    done_[slot].store(false, std::memory_order_relaxed);
    channel.meet({tag, memory.value(), bytes, &done_[slot]}, sends_it);
    return static_cast<Ticket>(slot);
  }

  LocalWorld& world_;
  int64_t rank_;
  std::vector<std::atomic<bool>> done_;
  std::vector<bool> used_;
  size_t next_ = 0;
};

LocalWorld::LocalWorld(int64_t ranks) {
  STRATA_CHECK(ranks > 0);
  for (int64_t i = 0; i < ranks * ranks; ++i) channels_.push_back(std::make_unique<Channel>());
  for (int64_t i = 0; i < ranks; ++i) ranks_.push_back(std::make_unique<Rank>(*this, i));
}

LocalWorld::~LocalWorld() = default;
Transport& LocalWorld::rank(int64_t rank) { return *ranks_[static_cast<size_t>(rank)]; }
int64_t LocalWorld::ranks() const { return static_cast<int64_t>(ranks_.size()); }

void on_local_ranks(int64_t ranks, const std::function<void(Transport&)>& work) {
  LocalWorld world(ranks);
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(world.rank(rank));
      } catch (...) {
        thrown[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : thrown)
    if (error) std::rethrow_exception(error);
}

}  // namespace strata::comm
