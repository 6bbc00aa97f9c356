#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/idle.h"
#include "comm/transport.h"
#include "core/error.h"

namespace strata::comm {

namespace {

constexpr int32_t control_tag = Transport::tags - 1;

device::Address address_of(const std::byte* bytes) { return device::Address(reinterpret_cast<uintptr_t>(bytes)); }

}  // namespace

void Control::wait(std::span<const Transport::Ticket> tickets, std::span<const int64_t> peers, const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::vector<size_t> open(tickets.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  Idle idle;
  while (true) {
    const auto before = open.size();
    transport_.poll();
    std::erase_if(open, [&](size_t i) { return transport_.done(tickets[i]); });
    if (open.empty()) return;
    if (open.size() != before) {
      idle.reset();
      continue;
    }
    if (std::chrono::duration<double>(Clock::now() - start).count() > seconds_) {
      std::vector<int64_t> missing;
      for (size_t i : open) missing.push_back(peers[i]);
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      throw run_error("rank {}: {}: no word from rank{} {} for {:g} s (run.timeout)", rank(), what,
                      missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), seconds_);
    }
    idle.pause();
  }
}

std::vector<std::byte> Control::gather(std::span<const std::byte> mine, const char* what) {
  const size_t bytes = mine.size();
  std::vector<std::byte> all(bytes * static_cast<size_t>(ranks()));
  const auto place = [&](int64_t of) { return all.data() + static_cast<size_t>(of) * bytes; };
  std::copy(mine.begin(), mine.end(), place(rank()));
  // To the first rank, which sends all to each: two messages a rank, however many ranks.
  std::vector<Transport::Ticket> tickets;
  std::vector<int64_t> peers;
  const auto size = static_cast<int64_t>(bytes);
  if (rank() != 0) {
    tickets = {transport_.send(0, control_tag, address_of(mine.data()), size),
               transport_.receive(0, control_tag, address_of(all.data()), size * ranks())};
    peers = {0, 0};
    wait(tickets, peers, what);
    return all;
  }
  for (int64_t peer = 1; peer < ranks(); ++peer) {
    tickets.push_back(transport_.receive(peer, control_tag, address_of(place(peer)), size));
    peers.push_back(peer);
  }
  wait(tickets, peers, what);
  tickets.clear();
  for (int64_t peer = 1; peer < ranks(); ++peer)
    tickets.push_back(transport_.send(peer, control_tag, address_of(all.data()), size * ranks()));
  wait(tickets, peers, what);
  return all;
}

void Control::send(int64_t to, std::span<const std::byte> bytes, const char* what) {
  const Transport::Ticket ticket =
      transport_.send(to, control_tag, address_of(bytes.data()), static_cast<int64_t>(bytes.size()));
  wait(std::span(&ticket, 1), std::span(&to, 1), what);
}

void Control::receive(int64_t from, std::span<std::byte> bytes, const char* what) {
  const Transport::Ticket ticket =
      transport_.receive(from, control_tag, address_of(bytes.data()), static_cast<int64_t>(bytes.size()));
  wait(std::span(&ticket, 1), std::span(&from, 1), what);
}

}  // namespace strata::comm
