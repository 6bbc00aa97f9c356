// Messages held back: all arrive, in order, no sooner than their link would have brought them.

#include "comm/paced.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "comm/idle.h"
#include "comm/local.h"

namespace strata::comm {
namespace {

void wait(Transport& transport, Transport::Ticket ticket) {
  Idle idle;
  for (transport.poll(); !transport.done(ticket); transport.poll()) idle.pause();
}

device::Address address(std::vector<int32_t>& values, size_t at) {
  return device::Address(reinterpret_cast<uintptr_t>(values.data() + at));
}

TEST(PacedTransport, SlowsSomeLinksAndKeepsTheOrderOfAll) {
  constexpr int64_t ranks = 3;
  constexpr int32_t messages = 20, words = 100;
  on_local_ranks(ranks, [&](Transport& inner) {
    // Neighbours 0 and 1 share a slow link; everything else goes at once.
    std::vector<int> link_of(ranks, -1);
    if (inner.rank() < 2) link_of[static_cast<size_t>(1 - inner.rank())] = 0;
    constexpr double bandwidth = 1e6, latency = 2e-3;
    PacedTransport transport(inner, {{bandwidth, latency}}, link_of);
    EXPECT_EQ(transport.rank(), inner.rank());
    EXPECT_EQ(transport.ranks(), ranks);
    const auto start = std::chrono::steady_clock::now();
    std::vector<int32_t> out(messages * words), in(ranks * messages * words, -1);
    std::vector<Transport::Ticket> tickets;
    for (int32_t m = 0; m < messages; ++m)
      for (int32_t w = 0; w < words; ++w)
        out[static_cast<size_t>(m * words + w)] = static_cast<int32_t>(inner.rank()) * 1000000 + m * words + w;
    for (int64_t peer = 0; peer < ranks; ++peer)
      if (peer != inner.rank())
        for (int32_t m = 0; m < messages; ++m) {
          tickets.push_back(
              transport.receive(peer, 7, address(in, static_cast<size_t>((peer * messages + m) * words)), words * 4));
          tickets.push_back(transport.send(peer, 7, address(out, static_cast<size_t>(m * words)), words * 4));
        }
    for (const Transport::Ticket ticket : tickets) wait(transport, ticket);
    if (inner.rank() < 2) {
      EXPECT_GE(std::chrono::steady_clock::now() - start,
                std::chrono::duration<double>(messages * words * 4 / bandwidth + latency));
    }
    for (int64_t peer = 0; peer < ranks; ++peer)
      for (int32_t i = 0; peer != inner.rank() && i < messages * words; ++i)
        ASSERT_EQ(in[static_cast<size_t>(peer * messages * words + i)], static_cast<int32_t>(peer) * 1000000 + i);
  });
}

TEST(PacedTransport, CarriesEmptyMessagesAndReusesItsTickets) {
  on_local_ranks(2, [&](Transport& inner) {
    PacedTransport transport(inner, {{1e9, 0}}, {0, 0});
    std::vector<int32_t> one(1);
    // Many more than can be under way at once.
    for (int i = 0; i < 40000; ++i) {
      const Transport::Ticket in = transport.receive(1 - inner.rank(), 1, address(one, 0), 0);
      const Transport::Ticket out = transport.send(1 - inner.rank(), 1, address(one, 0), 0);
      wait(transport, out);
      wait(transport, in);
    }
  });
}

}  // namespace
}  // namespace strata::comm
