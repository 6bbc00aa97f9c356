#include "train/links.h"

#include <gtest/gtest.h>

#include "comm/local.h"
#include "comm/paced.h"

namespace strata::train {
namespace {

TEST(Links, AllRanksLearnTheSameFiguresOfEveryLevelThatHasPeers) {
  const layout::Widths widths = {2, 1, 3};
  const std::vector<machine::Link> nominal = {
      {200e6, 1e-6, 1, "given"}, {7e6, 1e-6, 1, "given"}, {50e6, 1e-6, 2, "given"}};
  std::vector<std::vector<machine::Link>> all(6);
  comm::on_local_ranks(6, [&](comm::Transport& transport) {
    all[static_cast<size_t>(transport.rank())] = measure_links(transport, widths, nominal, 0.02);
  });
  for (const auto& links : all) {
    ASSERT_EQ(links.size(), 3u);
    EXPECT_GT(links[0].bandwidth, 0);
    EXPECT_GT(links[2].latency, 0);
    EXPECT_EQ(links[2].shared_by, 2);
    EXPECT_GT(links[2].bandwidth_alone, 0);
    EXPECT_EQ(links[2].bandwidth_alone, all[0][2].bandwidth_alone);
    EXPECT_EQ(links[0].bandwidth_alone, 0);  // shared with nobody
    EXPECT_EQ(links[1].bandwidth, 7e6);      // a level of one: nothing to measure
    EXPECT_EQ(links[1].source, "given");
    EXPECT_NE(links[0].source, "given");
    EXPECT_EQ(links[0].bandwidth, all[0][0].bandwidth);
    EXPECT_EQ(links[2].latency, all[0][2].latency);
  }
}

TEST(Links, APacedLinkMeasuresNoFasterThanItIsPaced) {
  const layout::Widths widths = {2};
  constexpr double bandwidth = 20e6;
  comm::on_local_ranks(2, [&](comm::Transport& inner) {
    comm::PacedTransport transport(inner, {{bandwidth, 1e-3}}, {0, 0});
    const std::vector<machine::Link> nominal = {{bandwidth, 1e-3, 1, "given"}};
    const auto links = measure_links(transport, widths, nominal, 0.2);
    EXPECT_LE(links[0].bandwidth, bandwidth * 1.001);
    EXPECT_GE(links[0].latency, 1e-3);
  });
}

}  // namespace
}  // namespace strata::train
