#pragma once
// Hops against plain loops: values, order of sums, every wire, uneven parts, bytes counted at the send.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/hop_run.h"
#include "comm/idle.h"
#include "core/random.h"
#include "layout/cuts.h"
#include "ops/op.h"

namespace strata::comm {

using device::Address;

struct Vector {
  std::unique_ptr<device::Device> device = device::make_cpu(1);
  device::Memory memory, staging;
  explicit Vector(int64_t bytes, int64_t staging_bytes)
      : memory(device->allocate(std::max<int64_t>(bytes, 64))),
        staging(device->allocate(std::max<int64_t>(staging_bytes, 64))) {}
};

inline float value(int64_t member, int64_t i) {
  return static_cast<float>(philox(static_cast<uint64_t>(member), static_cast<uint64_t>(i))[0]) * 0x1p-31f - 1.0f;
}

/// The sum in the bracketing that every layout shares: rank order in a level, levels inside out.
inline float bracketed(const Hop& hop, int64_t i, size_t level, int64_t member_prefix_stride, int64_t member) {
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

inline float expected_sum(const Hop& hop, int64_t i) {
  int64_t innermost_stride = 1;
  for (size_t outer = 1; outer < hop.widths.size(); ++outer) innermost_stride *= hop.widths[outer];
  return bracketed(hop, i, hop.widths.size() - 1, innermost_stride, 0);
}

inline void run(HopRun& hop, Transport& transport, device::Device& device, const HopRun::Buffers& buffers,
                bool accumulate = false) {
  hop.begin(transport, device, buffers, 5, {}, accumulate);
  Idle idle;
  while (!hop.advance()) {
    hop.moved() ? idle.reset() : idle.pause();
    transport.poll();
  }
}

/// One member's side: values, and bytes counted at the send. The transport's ranks are the hop's members.
inline void check_hop(Transport& transport, const Hop& hop) {
  const int64_t members = hop.members();
  {
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
  }
}

}  // namespace strata::comm
