#include "train/links.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "comm/idle.h"
#include "core/error.h"
#include "device/hollow.h"

namespace strata::train {

namespace {

constexpr int64_t largest_piece = int64_t{1} << 20;
constexpr size_t under_way = 16;
constexpr int rounds = 16;
constexpr double patience = 120;

/// Messages to one rank and from another, side by side.
class Exchange {
 public:
  explicit Exchange(comm::Transport& transport)
      : transport_(transport), device_(device::make_hollow(1)), memory_(device_->allocate(2 * largest_piece)) {}

  /// Sends and receives as many bytes, in pieces, some under way at once.
  void run(int64_t to, int64_t from, int64_t bytes, int64_t piece = largest_piece) {
    std::array<comm::Transport::Ticket, 2 * under_way> tickets;
    tickets.fill(-1);
    int64_t sent = 0, received = 0;
    comm::Idle idle;
    bool open = true;
    while (open) {
      open = sent < bytes || received < bytes;
      bool moved = false;
      transport_.poll();
      for (size_t i = 0; i < tickets.size(); ++i) {
        comm::Transport::Ticket& ticket = tickets[i];
        if (ticket >= 0 && transport_.done(ticket)) ticket = -1, moved = true;
        const bool sends = i < under_way;
        int64_t& moved_bytes = sends ? sent : received;
        if (ticket < 0 && moved_bytes < bytes) {
          const int64_t size = std::min(piece, bytes - moved_bytes);
          ticket = sends ? transport_.send(to, tag, memory_.address(), size)
                         : transport_.receive(from, tag, memory_.address() + largest_piece, size);
          moved_bytes += size;
          moved = true;
        }
        open |= ticket >= 0;
      }
      moved ? idle.reset() : idle.pause();
    }
  }

 private:
  static constexpr int32_t tag = 1;
  comm::Transport& transport_;
  std::unique_ptr<device::Device> device_;
  device::Memory memory_;
};

}  // namespace

std::vector<machine::Link> measure_links(comm::Transport& transport, const layout::Widths& widths,
                                         std::span<const machine::Link> nominal, double seconds) {
  STRATA_CHECK(widths.size() == nominal.size());
  comm::Control control(transport, patience);
  Exchange exchange(transport);
  const int64_t rank = transport.rank(), ranks = transport.ranks();
  // Connections first: some libraries make them at the first message.
  for (int64_t distance = 1; distance < ranks; ++distance)
    exchange.run((rank + distance) % ranks, (rank + ranks - distance) % ranks, 1);

  const auto time = [&](const auto& work) {
    control.barrier("measuring links");
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::vector<double> all = control.gather(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), "measuring links");
    return *std::max_element(all.begin(), all.end());
  };
  const std::vector<int64_t> position = layout::coordinates(widths, rank);
  std::vector<machine::Link> links(nominal.begin(), nominal.end());
  int64_t below = 1;
  for (size_t level = 0; level < widths.size(); ++level) {
    if (widths[level] > 1) {
      const auto number = static_cast<int>(level);
      const std::vector<int64_t> ring = layout::group(widths, rank, number, number + 1);
      const auto at = [&](int64_t place) { return ring[static_cast<size_t>(place % widths[level])]; };
      const int64_t to = at(position[level] + 1), from = at(position[level] + widths[level] - 1);
      machine::Link& link = links[level];
      const auto sharing = static_cast<double>(std::min(link.shared_by, below));
      const auto bytes = static_cast<int64_t>(link.bandwidth / sharing * seconds);
      // Some milliseconds each: shorter ones would measure the host, longer ones how messages are begun and ended.
      const auto piece =
          std::clamp<int64_t>(static_cast<int64_t>(link.bandwidth / sharing * 4e-3), 1 << 14, largest_piece);
      exchange.run(to, from, piece);
      link.bandwidth = static_cast<double>(bytes) * sharing / time([&] { exchange.run(to, from, bytes, piece); });
      if (sharing > 1) {
        // Of those that share a link, the first.
        const int64_t alone = rank % static_cast<int64_t>(sharing) == 0 ? bytes * static_cast<int64_t>(sharing) : 0;
        link.bandwidth_alone =
            static_cast<double>(bytes) * sharing / time([&] { exchange.run(to, from, alone, piece); });
      }
      // The quickest: others waited for a core.
      link.latency = patience;
      for (int i = 0; i < rounds; ++i) link.latency = std::min(link.latency, time([&] { exchange.run(to, from, 1); }));
      link.source = "measured between the ranks of this run";
    }
    below *= widths[level];
  }
  return links;
}

}  // namespace strata::train
