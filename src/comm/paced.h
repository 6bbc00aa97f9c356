#pragma once
// Links slower than the ones at hand: messages to some ranks leave no sooner than a described link would have brought them.

#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/transport.h"

namespace strata::comm {

/// A link that this rank sends over, shared with nobody.
struct Pace {
  double bandwidth = 0;  ///< bytes/s
  double latency = 0;    ///< seconds
};

/// Carries messages over `inner`. Those to rank r travel on pace number link_of[r], one after the other, and are handed on when
/// that link would have delivered them; -1: at once. What inner takes for them comes on top. From one thread at a time.
class PacedTransport final : public Transport {
 public:
  PacedTransport(Transport& inner, std::vector<Pace> paces, std::vector<int> link_of);

  int64_t rank() const override { return inner_.rank(); }
  int64_t ranks() const override { return inner_.ranks(); }
  Ticket send(int64_t to, int32_t tag, device::Address from, int64_t bytes) override;
  Ticket receive(int64_t from, int32_t tag, device::Address to, int64_t bytes) override;
  void poll() override;
  bool done(Ticket ticket) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    int64_t to = 0;
    int32_t tag = 0;
    device::Address from{};
    int64_t bytes = 0;
    Ticket handed_on = -1;  ///< inner's
  };
  struct Link {
    Pace pace{};
    Clock::time_point free{};                                     ///< when what was sent so far has passed
    std::vector<std::pair<Clock::time_point, Ticket>> waiting{};  ///< and when each is due, from `next` on
    size_t next = 0;
  };

  Transport& inner_;
  std::vector<Link> links_;
  std::vector<int> link_of_;
  std::vector<Held> held_;
  std::vector<Ticket> unused_;  ///< places in held_
};

}  // namespace strata::comm
