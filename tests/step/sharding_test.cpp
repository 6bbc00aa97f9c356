// The placement's lowering: memory of every state by closed form, transfers per step, and what they are made of.

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "core/error.h"

#include "model/unit.h"
#include "small_job.h"
#include "step/build.h"

namespace strata::step {
namespace {

struct Row {
  const char* name;
  const char *weights, *gradients, *optimizer;
};

// Any legal row: each state over none, package, node or all.
const std::vector<Row> rows = {
    {"ddp", "none", "none", "none"},     {"zero1", "none", "none", "all"},      {"zero2", "none", "all", "all"},
    {"zero3", "all", "all", "all"},      {"hsdp", "node", "node", "node"},      {"topo", "package", "node", "all"},
    {"odd1", "none", "package", "node"}, {"odd2", "package", "package", "all"}, {"odd3", "none", "none", "package"},
};

class Placements : public testing::TestWithParam<Row> {
 protected:
  job::Job job(bool tied) const {
    job::Job job = small_job(tied ? model::Family::gpt2 : model::Family::llama);
    job.mesh.levels = {{"package", 2}, {"node", 4}, {"system", 0}};
    job.batch.global = 16 * 4 * 3;
    job.placement.preset = "";
    job.placement.weights = GetParam().weights;
    job.placement.gradients = GetParam().gradients;
    job.placement.optimizer = GetParam().optimizer;
    return job;
  }
  static int64_t shards(const std::string& level) {
    return level == "none" ? 1 : level == "package" ? 2 : level == "node" ? 8 : 16;
  }
  const device::Planner& planner() const { return *planner_; }

 private:
  std::unique_ptr<device::Planner> planner_ = device::make_planner(1);
};

INSTANTIATE_TEST_SUITE_P(Rows, Placements, testing::ValuesIn(rows),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_P(Placements, StatesFollowTheClosedFormOnEveryRank) {
  for (const auto& [tied, compute, block] : {std::tuple{false, DType::f32, 0}, std::tuple{true, DType::f32, 0},
                                             std::tuple{true, DType::bf16, 0}, std::tuple{false, DType::bf16, 256}}) {
    job::Job j = job(tied);
    j.precision.compute = compute;
    if (block > 0) j.optimizer.name = "adamw8bit", j.optimizer.block = block;
    const int64_t s_w = shards(GetParam().weights), s_g = shards(GetParam().gradients),
                  s_o = shards(GetParam().optimizer);
    int64_t elements = 0, embedding = 0;
    for (const model::Unit& unit : model::units(j.model)) {
      const int64_t padded = round_up(unit.elements, ops::grain * s_o);
      elements += padded;
      if (unit.kind == model::UnitKind::embedding) embedding = padded;
    }
    for (int64_t rank : {0, 1, 7, 15}) {
      const Program p = build({.job = j, .ranks = 16, .rank = rank}, Goal::train, planner());
      std::map<BufferKind, int64_t> bytes;
      for (const Buffer& buffer : p.buffers)
        if (buffer.within < 0 && buffer.role != ops::Role::tied_gradient) bytes[buffer.kind] += buffer.bytes;
      EXPECT_EQ(bytes[BufferKind::weights], size_of(compute) * elements / s_w);
      EXPECT_EQ(bytes[BufferKind::master], compute == DType::f32 ? 0 : 4 * elements / s_o);
      EXPECT_EQ(bytes[BufferKind::moments],
                block == 0 ? 8 * elements / s_o : 2 * (elements / s_o + 4 * elements / s_o / block));
      // A tied table's accumulators are whole in every layout.
      const int64_t whole = tied ? embedding : 0;
      EXPECT_EQ(bytes[BufferKind::gradients], 4 * ((elements - whole) / s_g + whole));
    }
  }
}

TEST_P(Placements, TransfersAreThoseOfThePlacementAndNoOthers) {
  const job::Job j = job(false);
  const auto levels = [](const std::string& name) {
    return name == "none" ? 0 : name == "package" ? 1 : name == "node" ? 2 : 3;
  };
  // One hop a level.
  const int64_t l_w = levels(GetParam().weights), l_g = levels(GetParam().gradients),
                l_o = levels(GetParam().optimizer);
  const Program p = build({.job = j, .ranks = 16, .rank = 3}, Goal::train, planner());
  const int64_t units = static_cast<int64_t>(model::units(j.model).size()), micro_batches = 3;
  std::map<Purpose, int64_t> runs;
  for (const Task& task : p.tasks)
    if (const auto* t = std::get_if<Transfer>(&task.work)) {
      ++runs[t->purpose];
      EXPECT_GT(t->hop.members(), 1);
    }
  EXPECT_EQ(runs[Purpose::weights_forward], l_w * units * micro_batches);
  // A head's backward follows its forward: its weights are still there. An embedding's reads none.
  EXPECT_EQ(runs[Purpose::weights_backward], l_w * (units - 2) * micro_batches);
  EXPECT_EQ(runs[Purpose::gradients], l_g * units * micro_batches);
  // Beyond the optimizer's level a reduction and a gather.
  EXPECT_EQ(runs[Purpose::reduction], units * ((l_o - l_g) + 2 * (3 - l_o)));
  EXPECT_EQ(runs[Purpose::update], units * (l_o - l_w));
  EXPECT_EQ(runs[Purpose::norm], l_o);
  EXPECT_EQ(runs[Purpose::loss], 3);
}

TEST_P(Placements, EveryElementIsUpdatedByExactlyOneRankOfEachCopy) {
  const job::Job j = job(false);
  const int64_t s_o = shards(GetParam().optimizer);
  const auto units = model::units(j.model);
  std::vector<std::vector<int>> updated;
  for (const model::Unit& unit : units)
    updated.emplace_back(static_cast<size_t>(round_up(unit.elements, ops::grain * s_o)), 0);
  for (int64_t rank = 0; rank < 16; ++rank) {
    const Program p = build({.job = j, .ranks = 16, .rank = rank}, Goal::train, planner());
    for (const Task& task : p.tasks) {
      const Block* block = p.block_of(task);
      if (!block || block->ops[0].kind != ops::Kind::adamw) continue;
      const int unit = std::get<Compute>(task.work).unit;
      // Where in the unit's flat vector the rank's shard begins: from the tree's nested cuts, by hand.
      const int64_t all = static_cast<int64_t>(updated[static_cast<size_t>(unit)].size());
      int64_t begin = 0, size = all, r = rank, reached = 1;
      for (int64_t width : {2, 4, 2}) {
        if (reached == s_o) break;
        size /= width;
        begin += r % width * size;
        r /= width;
        reached *= width;
      }
      for (const ops::DecayRange& range : block->ops[0].as<ops::AdamWAttributes>().ranges)
        for (int64_t i = range.begin; i < range.end; ++i)
          ++updated[static_cast<size_t>(unit)][static_cast<size_t>(begin + i)];
    }
  }
  for (size_t u = 0; u < units.size(); ++u) {
    std::vector<int> expected(updated[u].size(), 0);
    for (const model::Parameter& q : units[u].parameters)
      for (int64_t i = 0; i < q.true_rows * (q.shape.elements() / q.shape[0]); ++i)
        expected[static_cast<size_t>(q.offset + i)] = static_cast<int>(16 / s_o);
    EXPECT_EQ(updated[u], expected) << units[u].name;
  }
}

TEST(Secondary, IsFilledByTheFirstForwardAndServesAllLaterGathers) {
  job::Job j = small_job(model::Family::llama);
  j.mesh.levels = {{"package", 2}, {"node", 4}, {"system", 0}};
  j.batch.global = 16 * 4 * 3;
  j.placement.preset = "zeropp";
  const auto planner = device::make_planner(1);
  const Program p = build({.job = j, .ranks = 16}, Goal::train, *planner);
  const auto units = static_cast<int64_t>(model::units(j.model).size());
  int64_t wide = 0, narrow = 0, copies = 0;
  for (const Task& task : p.tasks) {
    const auto* t = std::get_if<Transfer>(&task.work);
    if (!t || (t->purpose != Purpose::weights_forward && t->purpose != Purpose::weights_backward)) continue;
    ++(t->last_level == 3 ? wide : narrow);
  }
  for (const Buffer& buffer : p.buffers) copies += buffer.kind == BufferKind::secondary;
  EXPECT_EQ(wide, units);  // cross nodes in the step's first forward only
  EXPECT_EQ(copies, units);
  EXPECT_EQ(narrow, 2 * (units * 3 + (units - 2) * 3));  // backwards: neither the head's nor the embedding's
}

TEST(LargePlacement, A20BModelOn384RanksTakesItsClosedForm) {
  job::Job j;
  j.model = job::load_preset("gpt-neox-20b");
  j.mesh.levels = {{"package", 2}, {"node", 4}, {"system", 0}};
  j.batch = {.global = 384, .micro = 1, .sequence = 2048};
  j.placement.preset = "zero-topo";
  for (job::WireChoice& wire : j.placement.wires) wire.everywhere = job::Wire::full;
  const auto planner = device::make_planner(1);
  const Program p = build({.job = j, .ranks = 384}, Goal::train, *planner);
  int64_t elements = 0, states = 0;
  for (const model::Unit& unit : model::units(j.model)) elements += round_up(unit.elements, ops::grain * 384);
  for (const Buffer& buffer : p.buffers)
    if (buffer.within < 0 && (buffer.kind == BufferKind::weights || buffer.kind == BufferKind::moments ||
                              buffer.kind == BufferKind::gradients))
      states += buffer.bytes;
  EXPECT_EQ(states, 4 * elements / 2 + 4 * elements / 8 + 8 * elements / 384);
}

TEST(RefusesWhatIsNotLowered, ByName) {
  const auto planner = device::make_planner(1);
  job::Job j = small_job();
  j.mesh.tensor = 2;
  EXPECT_THROW(build({.job = j, .ranks = 2}, Goal::train, *planner), Error);
  job::Job uneven = small_job();
  uneven.mesh.levels = {{"package", 2}, {"node", 0}};
  EXPECT_THROW(build({.job = uneven, .ranks = 3}, Goal::train, *planner), Error);
}

}  // namespace
}  // namespace strata::step
