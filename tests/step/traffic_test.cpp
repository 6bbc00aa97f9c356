// Bytes that a rank sends in a step, by closed form: what crosses which level, how often.

#include "step/traffic.h"

#include <gtest/gtest.h>

#include "device/device.h"
#include "model/unit.h"
#include "small_job.h"
#include "step/build.h"

namespace strata::step {
namespace {

constexpr int64_t package = 2, node = 4, system = 2, ranks = package * node * system;

job::Job on_tree(const char* preset, int64_t micro_batches, bool full_wires = true) {
  job::Job job = small_job(model::Family::llama);
  job.mesh.levels = {{"package", package}, {"node", node}, {"system", system}};
  job.batch = {.global = ranks * micro_batches, .micro = 1, .sequence = 32};
  job.placement.preset = preset;
  if (full_wires)
    for (job::WireChoice& wire : job.placement.wires) wire.everywhere = job::Wire::full;
  return job;
}

Traffic sent(const job::Job& job, int64_t rank = 5) {
  const auto planner = device::make_planner(1);
  return traffic(build({.job = job, .ranks = ranks, .rank = rank}, Goal::train, *planner));
}

/// Bytes over a level for a purpose, on any wire.
int64_t bytes(const Traffic& all, int level, Purpose purpose) {
  int64_t sum = 0;
  for (const auto& [key, entry] : all.entries())
    if (key.level == level && key.purpose == purpose) sum += entry.bytes;
  return sum;
}

/// Elements of all units padded over so many shards; without the last or the first unit as named.
struct Elements {
  int64_t all = 0, gathered_backward = 0;
};
Elements elements(const job::Job& job, int64_t shards) {
  Elements result;
  for (const model::Unit& unit : model::units(job.model)) {
    const int64_t padded = round_up(unit.elements, ops::grain * shards);
    result.all += padded;
    // A head's backward finds its weights there; an embedding's reads none.
    if (unit.kind == model::UnitKind::layer) result.gathered_backward += padded;
  }
  return result;
}

TEST(Traffic, ZeroTopoStaysInTheNodeButForOneReductionAndOneGatherAStep) {
  for (int64_t micro_batches : {1, 2, 5}) {
    const job::Job job = on_tree("zero-topo", micro_batches);
    const Traffic t = sent(job);
    const Elements e = elements(job, ranks);
    EXPECT_EQ(bytes(t, 0, Purpose::weights_forward), micro_batches * 4 * e.all / 2);
    EXPECT_EQ(bytes(t, 0, Purpose::weights_backward), micro_batches * 4 * e.gathered_backward / 2);
    // Package and node in one hop: to each of seven others an eighth.
    EXPECT_EQ(bytes(t, 0, Purpose::gradients), micro_batches * 4 * e.all / 8);
    EXPECT_EQ(bytes(t, 1, Purpose::gradients), micro_batches * 4 * e.all * 6 / 8);
    EXPECT_EQ(bytes(t, 2, Purpose::gradients), 0);
    // Once a step, however many micro-batches.
    EXPECT_EQ(bytes(t, 2, Purpose::reduction), 4 * e.all / 8 / 2);
    EXPECT_EQ(bytes(t, 2, Purpose::update), 4 * e.all / 8 / 2);
    EXPECT_EQ(bytes(t, 1, Purpose::update), 4 * e.all / 2 * 3 / 4);
    EXPECT_EQ(bytes(t, 2, Purpose::weights_forward) + bytes(t, 2, Purpose::weights_backward), 0);
  }
}

TEST(Traffic, ZeroPlusPlusGathersAcrossNodesInTheFirstForwardOnly) {
  const auto across = [](int64_t micro_batches) {
    const job::Job job = on_tree("zeropp", micro_batches);
    const Traffic t = sent(job);
    EXPECT_EQ(bytes(t, 2, Purpose::weights_backward), 0);
    EXPECT_EQ(bytes(t, 2, Purpose::weights_forward), 4 * elements(job, ranks).all / ranks);
    // Its gradients cross nodes in every micro-batch.
    EXPECT_EQ(bytes(t, 2, Purpose::gradients), micro_batches * 4 * elements(job, ranks).all / 8 / 2);
    return t.bytes(2);
  };
  EXPECT_GT(across(3), across(1));
}

TEST(Traffic, HopPlansMoveBytesToOtherLevelsAndSumUpToTheGroup) {
  job::Job job = on_tree("zero3", 1);
  const Elements e = elements(job, ranks);
  // A hop a level, gathers outside in: what comes from afar is the smallest part.
  const Traffic by_level = sent(job);
  EXPECT_EQ(bytes(by_level, 2, Purpose::weights_forward), 4 * e.all / 16);
  EXPECT_EQ(bytes(by_level, 1, Purpose::weights_forward), 4 * e.all / 8 * 3);
  EXPECT_EQ(bytes(by_level, 0, Purpose::weights_forward), 4 * e.all / 2);
  // All in one hop: to each of fifteen others a sixteenth, eight of them across nodes.
  job.placement.hops.fill({{"package", "node", "system"}});
  const Traffic at_once = sent(job);
  EXPECT_EQ(bytes(at_once, 2, Purpose::weights_forward), 4 * e.all / 16 * 8);
  EXPECT_EQ(bytes(at_once, 1, Purpose::weights_forward), 4 * e.all / 16 * 6);
  EXPECT_EQ(bytes(at_once, 0, Purpose::weights_forward), 4 * e.all / 16);
  // As published: a ring over all, which two ranks of each node's eight leave and enter by.
  job.placement.collectives = job::Collectives::flat;
  int64_t in_rings = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Traffic ring = sent(job, rank);
    EXPECT_EQ(bytes(ring, 0, Purpose::weights_forward) + bytes(ring, 1, Purpose::weights_forward) +
                  bytes(ring, 2, Purpose::weights_forward),
              4 * e.all / 16 * 15);
    in_rings += bytes(ring, 2, Purpose::weights_forward);
  }
  EXPECT_EQ(in_rings, 2 * 4 * e.all / 16 * 15);  // one rank of each node sends to the other
}

TEST(Traffic, QuantisedWiresSendCodesAndScales) {
  const job::Job job = on_tree("zero-topo", 1, false);
  const Traffic t = sent(job);
  const Elements e = elements(job, ranks);
  // int8: a byte a value and a scale for 512; int4: half a byte and a scale for 128.
  EXPECT_EQ(bytes(t, 0, Purpose::weights_forward), (e.all + 4 * e.all / 512) / 2);
  EXPECT_EQ(bytes(t, 1, Purpose::gradients), (e.all / 2 + 4 * e.all / 128) * 6 / 8);
  EXPECT_EQ(bytes(t, 2, Purpose::reduction), 2 * e.all / 8 / 2);
}

TEST(Traffic, SumsAndCompares) {
  Traffic a, b;
  a.at({0, Purpose::norm, "i64"}) = {8, 1};
  EXPECT_FALSE(a == b);
  b.at({0, Purpose::norm, "i64"}) = {8, 1};
  b.at({2, Purpose::loss, "f64"});  // nothing sent is nothing
  EXPECT_EQ(a, b);
  a.add(b, 2);
  EXPECT_EQ(a.bytes(0), 24);
  EXPECT_EQ(a.bytes(1), 0);
}

}  // namespace
}  // namespace strata::step
