// Hops between threads against plain loops: values, order of sums, every wire, uneven parts, bytes counted at the send.

#include "comm/hop_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "comm/idle.h"
#include "core/error.h"
#include "core/random.h"
#include "layout/cuts.h"
#include "support/ranks.h"

namespace strata::comm {
namespace {

using device::Address;

struct Vector {
  std::unique_ptr<device::Device> device = device::make_cpu(1);
  device::Memory memory, staging;
  explicit Vector(int64_t bytes, int64_t staging_bytes)
      : memory(device->allocate(std::max<int64_t>(bytes, 64))),
        staging(device->allocate(std::max<int64_t>(staging_bytes, 64))) {}
};

float value(int64_t member, int64_t i) {
  return static_cast<float>(philox(static_cast<uint64_t>(member), static_cast<uint64_t>(i))[0]) * 0x1p-31f - 1.0f;
}

/// The sum in the bracketing that every layout shares: rank order in a level, levels inside out.
float bracketed(const Hop& hop, int64_t i, size_t level, int64_t member_prefix_stride, int64_t member) {
  // `member` has the coordinates of the levels above `level`; its inner ones are zero.
  if (level == 0) {
    float sum = 0;
    for (int64_t c = 0; c < hop.widths[0]; ++c) {
      const float v = value(member + c * member_prefix_stride, i);
      sum = c == 0 ? v : sum + v;
    }
    return sum;
  }
  float sum = 0;
  for (int64_t c = 0; c < hop.widths[level]; ++c) {
    // The coordinate of a level counts as many members as all levels outside it have together.
    int64_t stride = 1;
    for (size_t outer = level + 1; outer < hop.widths.size(); ++outer) stride *= hop.widths[outer];
    const float v = bracketed(hop, i, level - 1, member_prefix_stride, member + c * stride);
    sum = c == 0 ? v : sum + v;
  }
  return sum;
}

float expected_sum(const Hop& hop, int64_t i) {
  int64_t innermost_stride = 1;
  for (size_t outer = 1; outer < hop.widths.size(); ++outer) innermost_stride *= hop.widths[outer];
  return bracketed(hop, i, hop.widths.size() - 1, innermost_stride, 0);
}

void run(HopRun& hop, Transport& transport, device::Device& device, const HopRun::Buffers& buffers,
         bool accumulate = false) {
  hop.begin(transport, device, buffers, 5, {}, accumulate);
  Idle idle;
  while (!hop.advance()) hop.moved() ? idle.reset() : idle.pause();
}

void check_hop(const Hop& hop) {
  const int64_t members = hop.members();
  test::on_ranks(members, [&](Transport& transport) {
    const int64_t member = transport.rank();
    std::vector<int64_t> ranks;
    for (int64_t m = 0; m < members; ++m) ranks.push_back(m);
    HopRun walk(hop, ranks, member);
    const auto own = layout::part({0, hop.elements}, members, member);
    Vector v(hop.elements * 4, staging_bytes(hop));
    std::vector<float> values(static_cast<size_t>(hop.elements));
    for (int64_t i = 0; i < hop.elements; ++i) values[static_cast<size_t>(i)] = value(member, i);
    v.device->upload(v.memory.address(), values.data(), hop.elements * 4);
    const Address at_own = v.memory.address() + own.begin * 4;
    const bool gather = hop.collective == Collective::all_gather,
               scatter = hop.collective == Collective::reduce_scatter;
    // Twice, as a step does: the second time sums are added to the first.
    run(walk, transport, *v.device,
        {gather ? at_own : v.memory.address(), scatter ? at_own : v.memory.address(), v.staging.address(), {}});
    EXPECT_EQ(walk.sent(), sent_by(hop, member));
    std::vector<float> after(values.size());
    v.device->download(after.data(), v.memory.address(), hop.elements * 4);
    const bool exact = hop.wire.lossless(DType::f32);
    // Of the largest value, 2, of a block: half a step.
    const double step = hop.wire.kind == device::WireKind::int4   ? 1.0 / 7
                        : hop.wire.kind == device::WireKind::int8 ? 1.0 / 127
                        : exact                                   ? 0
                                                                  : 0x1p-7;
    for (int64_t m = 0; m < members; ++m) {
      const auto part = layout::part({0, hop.elements}, members, m);
      for (int64_t i = part.begin; i < part.begin + part.elements; ++i) {
        const float found = after[static_cast<size_t>(i)];
        if (gather) {
          ASSERT_NEAR(found, value(m, i), step * 0.51) << i;
        } else if (!scatter || m == member) {
          const float sum = expected_sum(hop, i);
          if (exact && hop.algorithm == Algorithm::direct)
            ASSERT_EQ(found, sum) << i;
          else
            ASSERT_NEAR(found, sum, 1e-5 + step * 0.51 * static_cast<double>(members) * 2) << i;
        }
      }
    }
  });
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
            check_hop({collective, algorithm, widths, grains * ops::grain, DType::f32, wire});
            if (testing::Test::HasFatalFailure()) return;
          }
}

TEST(HopRun, SumsAFewValuesEverywhere) {
  for (const int64_t elements : {1, 3, 17}) check_hop({Collective::all_reduce, Algorithm::direct, {4}, elements});
}

TEST(HopRun, HopByHopAndInOneHopGiveTheSameBits) {
  // A reduction over package, then node, then system, against one over all three.
  const std::vector<int64_t> widths = {2, 2, 2};
  const int64_t elements = 16 * ops::grain;
  std::vector<std::vector<float>> parts(8);
  test::on_ranks(8, [&](Transport& transport) {
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
  test::on_ranks(3, [](Transport& transport) {
    Control control(transport, 10);
    const auto all = control.gather(transport.rank() * 11, "test");
    EXPECT_EQ(all, (std::vector<int64_t>{0, 11, 22}));
  });
  std::string said;
  test::on_ranks(3, [&](Transport& transport) {
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
