// Hops between threads of this process.

#include "comm/hop_run.h"

#include <gtest/gtest.h>

#include "comm/hop_trial.h"
#include "comm/local.h"
#include "core/error.h"

namespace strata::comm {
namespace {

void check_on_threads(const Hop& hop) {
  comm::on_local_ranks(hop.members(), [&](Transport& transport) { check_hop(transport, hop); });
}

TEST(HopRun, MovesAndSumsLikePlainLoops) {
  for (const std::vector<int64_t>& widths :
       {std::vector<int64_t>{2}, std::vector<int64_t>{5}, std::vector<int64_t>{2, 3}, std::vector<int64_t>{2, 2, 2}})
    for (const int64_t grains : {1, 9, 120})
      for (const auto collective : {Collective::all_gather, Collective::reduce_scatter})
        for (const auto algorithm : {Algorithm::direct, Algorithm::ring})
          for (const device::Wire& wire :
               {device::Wire{}, device::Wire{.dtype = DType::bf16}, device::Wire{device::WireKind::int8, {}, 512},
                device::Wire{device::WireKind::int4, {}, 128}}) {
            const bool quantised_ring = algorithm == Algorithm::ring && collective == Collective::reduce_scatter &&
                                        wire.kind != device::WireKind::raw;
            if (quantised_ring) continue;
            SCOPED_TRACE(testing::Message() << name_of(collective) << ' ' << name_of(algorithm) << ' ' << name_of(wire)
                                            << ' ' << widths.size() << " levels, " << grains);
            check_on_threads({collective, algorithm, widths, grains * ops::grain, DType::f32, wire});
            if (testing::Test::HasFatalFailure()) return;
          }
}

TEST(HopRun, SumsAFewValuesEverywhere) {
  for (const int64_t elements : {1, 3, 17})
    check_on_threads({Collective::all_reduce, Algorithm::direct, {4}, elements});
}

TEST(HopRun, HopByHopAndInOneHopGiveTheSameBits) {
  // A reduction over package, then node, then system, against one over all three.
  const std::vector<int64_t> widths = {2, 2, 2};
  const int64_t elements = 16 * ops::grain;
  std::vector<std::vector<float>> parts(8);
  comm::on_local_ranks(8, [&](Transport& transport) {
    const int64_t rank = transport.rank();
    const auto position = layout::coordinates(widths, rank);
    const int64_t whole_member = (position[0] * 2 + position[1]) * 2 + position[2];
    std::vector<float> values(static_cast<size_t>(elements));
    for (int64_t i = 0; i < elements; ++i) values[static_cast<size_t>(i)] = value(whole_member, i);
    Vector v(elements * 4, 64 << 20);
    v.device->upload(v.memory.address(), values.data(), elements * 4);
    layout::Cut whole{0, elements};
    for (int level = 0; level < 3; ++level) {
      const Hop hop{Collective::reduce_scatter, Algorithm::direct, {2}, whole.elements};
      HopRun walk(hop, layout::group(widths, rank, level, level + 1), position[static_cast<size_t>(level)]);
      const auto part = layout::part(whole, 2, position[static_cast<size_t>(level)]);
      run(walk, transport, *v.device,
          {v.memory.address() + whole.begin * 4, v.memory.address() + part.begin * 4, v.staging.address(), {}});
      whole = part;
    }
    std::vector<float> mine(static_cast<size_t>(whole.elements));
    v.device->download(mine.data(), v.memory.address() + whole.begin * 4, whole.elements * 4);
    const Hop all{Collective::reduce_scatter, Algorithm::direct, widths, elements};
    for (int64_t i = 0; i < whole.elements; ++i)
      ASSERT_EQ(mine[static_cast<size_t>(i)], expected_sum(all, whole.begin + i)) << i;
  });
}

TEST(Control, GathersAndNamesWhoDoesNotCome) {
  comm::on_local_ranks(3, [](Transport& transport) {
    Control control(transport, 10);
    const auto all = control.gather(transport.rank() * 11, "test");
    EXPECT_EQ(all, (std::vector<int64_t>{0, 11, 22}));
  });
  std::string said;
  comm::on_local_ranks(3, [&](Transport& transport) {
    if (transport.rank() == 2) return;
    Control control(transport, 0.2);
    try {
      control.gather(1, "counting heads");
      ADD_FAILURE();
    } catch (const Error& error) {
      if (transport.rank() == 0) said = error.what();
    }
  });
  EXPECT_NE(said.find("counting heads: no word from rank 2 "), std::string::npos) << said;
}

}  // namespace
}  // namespace strata::comm
