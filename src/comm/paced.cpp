#include "comm/paced.h"

#include <algorithm>

#include "core/error.h"

namespace strata::comm {

namespace {

/// Tickets of held messages begin here, above any of the inner transport.
constexpr Transport::Ticket first_held = 1 << 24;
constexpr size_t at_once = 1 << 15;

}  // namespace

PacedTransport::PacedTransport(Transport& inner, std::vector<Pace> paces, std::vector<int> link_of)
    : inner_(inner), link_of_(std::move(link_of)), held_(at_once) {
  STRATA_CHECK(static_cast<int64_t>(link_of_.size()) == inner.ranks());
  for (const Pace& pace : paces) {
    STRATA_CHECK(pace.bandwidth > 0 && pace.latency >= 0);
    links_.push_back({pace});
    links_.back().waiting.reserve(at_once);
  }
  for (const int link : link_of_) STRATA_CHECK(link < static_cast<int>(links_.size()));
  for (size_t place = at_once; place-- > 0;) unused_.push_back(static_cast<Ticket>(place));
}

Transport::Ticket PacedTransport::send(int64_t to, int32_t tag, device::Address from, int64_t bytes) {
  const int number = link_of_[static_cast<size_t>(to)];
  if (number < 0) return inner_.send(to, tag, from, bytes);
  STRATA_CHECK(!unused_.empty(), "more than {} messages under way", at_once);
  const Ticket place = unused_.back();
  unused_.pop_back();
  held_[static_cast<size_t>(place)] = {to, tag, from, bytes, -1};
  Link& link = links_[static_cast<size_t>(number)];
  const auto lasts = [](double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  link.free = std::max(link.free, Clock::now()) + lasts(static_cast<double>(bytes) / link.pace.bandwidth);
  link.waiting.emplace_back(link.free + lasts(link.pace.latency), place);
  return first_held + place;
}

Transport::Ticket PacedTransport::receive(int64_t from, int32_t tag, device::Address to, int64_t bytes) {
  return inner_.receive(from, tag, to, bytes);
}

void PacedTransport::poll() {
  const auto now = Clock::now();
  for (Link& link : links_) {
    for (; link.next < link.waiting.size() && link.waiting[link.next].first <= now; ++link.next) {
      Held& held = held_[static_cast<size_t>(link.waiting[link.next].second)];
      held.handed_on = inner_.send(held.to, held.tag, held.from, held.bytes);
    }
    if (link.next == link.waiting.size()) link.waiting.clear(), link.next = 0;
  }
  inner_.poll();
}

bool PacedTransport::done(Ticket ticket) {
  if (ticket < first_held) return inner_.done(ticket);
  const Ticket place = ticket - first_held;
  const Ticket handed_on = held_[static_cast<size_t>(place)].handed_on;
  if (handed_on < 0 || !inner_.done(handed_on)) return false;
  unused_.push_back(place);
  return true;
}

}  // namespace strata::comm
