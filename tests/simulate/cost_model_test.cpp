// Prices by closed form: operations at their share of the device, hops at the pace of the links that they share.

#include "simulate/cost_model.h"

#include <gtest/gtest.h>

namespace strata::simulate {
namespace {

using comm::Algorithm;
using comm::Collective;
using comm::Hop;

const machine::Device device{.name = "d",
                             .memory = 1e9,
                             .memory_bandwidth = 1e9,
                             .peak = 8e9,
                             .peak_fp32 = 2e9,
                             .product_share = 0.5,
                             .memory_share = 0.25,
                             .launch = 1e-3,
                             .source = "made up"};

ops::Tensor tensor(DType dtype, ops::Shape shape) { return {.dtype = dtype, .shape = shape}; }

TEST(OpSeconds, ProductsByTypeAndEverythingElseByBytes) {
  const auto linear = [](DType dtype) {
    const std::vector<ops::Tensor> tensors = {tensor(dtype, {64, 512}), tensor(dtype, {256, 512}),
                                              tensor(dtype, {64, 256})};
    return op_seconds(device, {.kind = ops::Kind::linear, .in = {0, 1}, .out = {2}}, tensors);
  };
  const double flops = 2.0 * 64 * 512 * 256;
  EXPECT_DOUBLE_EQ(linear(DType::bf16), 1e-3 + flops / 4e9);
  EXPECT_DOUBLE_EQ(linear(DType::f32), 1e-3 + flops / 1e9);
  const std::vector<ops::Tensor> tensors = {tensor(DType::f32, {64, 512}), tensor(DType::f32, {64, 512}),
                                            tensor(DType::f32, {64, 512})};
  EXPECT_DOUBLE_EQ(op_seconds(device, {.kind = ops::Kind::add, .in = {0, 1}, .out = {2}}, tensors),
                   1e-3 + 3 * 4.0 * 64 * 512 / 0.25e9);
}

/// Three levels of 2 x 4 x 2; two ranks share each link that leaves a package.
const std::vector<machine::Link> links = {{1000e6, 1e-6, 1, "p"}, {300e6, 1e-5, 2, "n"}, {100e6, 1e-4, 2, "s"}};
constexpr int64_t elements = int64_t{1} << 20;
constexpr double bytes = 4.0 * elements;

Hop hop(Collective collective, Algorithm algorithm, std::vector<int64_t> widths) {
  return {collective, algorithm, std::move(widths), elements, DType::f32, {}};
}

TEST(HopSeconds, DirectHopsPayForTheirSlowestLinkWithAllThatShareIt) {
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    const Hop system = hop(collective, Algorithm::direct, {2});
    EXPECT_DOUBLE_EQ(hop_seconds(system, std::span(links).subspan(2), 8), 1e-4 + bytes / 2 * 2 / 100e6);
    // One rank alone below the level shares it with nobody.
    EXPECT_DOUBLE_EQ(hop_seconds(system, std::span(links).subspan(2), 1), 1e-4 + bytes / 2 / 100e6);
    // Across everything, each rank sends half of its messages over the last level.
    EXPECT_DOUBLE_EQ(hop_seconds(hop(collective, Algorithm::direct, {2, 4, 2}), links, 1),
                     1e-4 + bytes / 16 * 8 * 2 / 100e6);
    EXPECT_DOUBLE_EQ(hop_seconds(hop(collective, Algorithm::direct, {2}), std::span(links).first(1), 1),
                     1e-6 + bytes / 2 / 1000e6);
  }
}

TEST(HopSeconds, ARingIsAsSlowAsItsSlowestLinkWhichItCrossesAlone) {
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    EXPECT_NEAR(hop_seconds(hop(collective, Algorithm::ring, {2, 4, 2}), links, 1), 15 * (1e-4 + bytes / 16 / 100e6),
                1e-9);
    // Rings of the ranks of one package cross its link side by side.
    EXPECT_NEAR(hop_seconds(hop(collective, Algorithm::ring, {4}), std::span(links).subspan(1, 1), 2),
                3 * (1e-5 + bytes / 4 * 2 / 300e6), 1e-9);
  }
}

TEST(HopSeconds, ALoneSenderGetsWhatItGetsAlone) {
  std::vector<machine::Link> uneven = links;
  uneven[2].bandwidth_alone = 80e6;
  const Hop ring = hop(Collective::all_gather, Algorithm::ring, {2, 4, 2});
  EXPECT_NEAR(hop_seconds(ring, uneven, 1), 15 * (1e-4 + bytes / 16 / 80e6), 1e-9);
  const Hop system = hop(Collective::all_gather, Algorithm::direct, {2});
  EXPECT_DOUBLE_EQ(hop_seconds(system, std::span(uneven).subspan(2), 1), 1e-4 + bytes / 2 / 80e6);
  EXPECT_DOUBLE_EQ(hop_seconds(system, std::span(uneven).subspan(2), 8), 1e-4 + bytes / 2 * 2 / 100e6);
}

TEST(HopSeconds, NarrowWiresTakeTheirShare) {
  Hop int8 = hop(Collective::all_gather, Algorithm::direct, {2});
  int8.wire = {device::WireKind::int8, DType::f32, 512, false};
  const double full = hop_seconds(hop(Collective::all_gather, Algorithm::direct, {2}), std::span(links).subspan(2), 8);
  EXPECT_DOUBLE_EQ((hop_seconds(int8, std::span(links).subspan(2), 8) - 1e-4) / (full - 1e-4), (512.0 + 4) / (4 * 512));
  EXPECT_EQ(hop_seconds(hop(Collective::all_gather, Algorithm::direct, {1}), std::span(links).first(1), 1), 0);
}

}  // namespace
}  // namespace strata::simulate
