// The lists of messages: what one sends another expects, in the same order; volumes by closed form.

#include "comm/messages.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "comm/hop_run.h"
#include "ops/op.h"

namespace strata::comm {
namespace {

const std::vector<std::vector<int64_t>> trees = {{2}, {3}, {8}, {2, 2}, {2, 4}, {4, 1, 2}, {1, 3}, {2, 2, 2}};

std::vector<Hop> hops() {
  std::vector<Hop> all;
  for (const auto& widths : trees)
    for (const int64_t grains : {0, 1, 7, 64, 1000})
      for (const auto collective : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce})
        for (const auto algorithm : {Algorithm::direct, Algorithm::ring})
          for (const device::Wire& wire :
               {device::Wire{}, device::Wire{.dtype = DType::bf16}, device::Wire{device::WireKind::int8, {}, 512},
                device::Wire{device::WireKind::int4, {}, 128}}) {
            if (collective == Collective::all_reduce &&
                (algorithm == Algorithm::ring || wire.dtype != DType::f32 || wire.kind != device::WireKind::raw))
              continue;
            all.push_back({collective, algorithm, widths, grains * ops::grain, DType::f32, wire});
          }
  return all;
}

TEST(Messages, WhatIsSentIsExpectedInTheSameOrder) {
  for (const Hop& hop : hops()) {
    std::map<std::pair<int64_t, int64_t>, std::vector<std::tuple<int64_t, int64_t, int64_t>>> sent, expected;
    for (int64_t member = 0; member < hop.members(); ++member) {
      const Messages list = messages(hop, member);
      for (const Message& m : list.sends) {
        EXPECT_EQ(m.from, member);
        EXPECT_NE(m.to, member);
        EXPECT_LT(m.round, list.rounds);
        EXPECT_EQ(m.bytes, hop.wire.bytes(m.values.elements));
        EXPECT_LE(m.bytes, int64_t{1} << 30);
        sent[{m.from, m.to}].push_back({m.values.begin, m.values.elements, m.bytes});
      }
      for (const Message& m : list.receives) {
        EXPECT_EQ(m.to, member);
        expected[{m.from, m.to}].push_back({m.values.begin, m.values.elements, m.bytes});
      }
    }
    EXPECT_EQ(sent, expected);
  }
}

TEST(Messages, EveryMemberSendsAllButItsPartOnce) {
  for (const Hop& hop : hops()) {
    if (hop.elements % (hop.members() * ops::grain) != 0) continue;
    for (int64_t member = 0; member < hop.members(); ++member) {
      int64_t values = 0;
      for (const Message& m : messages(hop, member).sends) values += m.values.elements;
      EXPECT_EQ(values, hop.collective == Collective::all_reduce ? (hop.members() - 1) * hop.elements
                                                                 : hop.elements / hop.members() * (hop.members() - 1));
    }
  }
}

TEST(Messages, AFlatRingCrossesEachBorderOnce) {
  // Two packages of two in each of two nodes: of eight ranks in a ring, one in each node sends to the other node.
  const Hop hop{Collective::all_gather, Algorithm::ring, {2, 2, 2}, 64 * ops::grain, DType::f32, {}};
  std::vector<int64_t> members_that_cross(3);
  for (int64_t member = 0; member < 8; ++member) {
    std::set<int> levels;
    for (const Message& m : messages(hop, member).sends) levels.insert(crossed(hop, m.from, m.to));
    ASSERT_EQ(levels.size(), 1u);
    ++members_that_cross[static_cast<size_t>(*levels.begin())];
  }
  EXPECT_EQ(members_that_cross, (std::vector<int64_t>{4, 2, 2}));
}

TEST(Messages, LevelsCrossedAreThoseOfTheTree) {
  const Hop hop{.widths = {2, 3, 2}};
  // Member numbers: the innermost level's coordinate counts most.
  const auto member = [](int64_t package, int64_t node, int64_t system) { return (package * 3 + node) * 2 + system; };
  EXPECT_EQ(crossed(hop, member(0, 1, 1), member(1, 1, 1)), 0);
  EXPECT_EQ(crossed(hop, member(0, 1, 1), member(1, 2, 1)), 1);
  EXPECT_EQ(crossed(hop, member(0, 1, 1), member(0, 1, 0)), 2);
}

}  // namespace
}  // namespace strata::comm
