// Every layout means the same: losses and weights, bit for bit where the design says so, over placements, trees, hop plans,
// prefetch and overlap; to a stated tolerance elsewhere. And in all of them bytes sent are bytes counted, memory planned is
// memory allocated, and no step allocates.

#include <gtest/gtest.h>

#include <map>

#include "core/allocations.h"
#include "execute/model_state.h"
#include "layout/small_run.h"
#include "train/runner.h"

namespace strata::train {
namespace {

struct Tree {
  std::vector<int64_t> widths;
};

void place(job::Job& job, const std::string& weights, const std::string& secondary, const std::string& gradients,
           const std::string& optimizer) {
  job.placement.preset = "";
  job.placement.weights = weights;
  job.placement.secondary = secondary;
  job.placement.gradients = gradients;
  job.placement.optimizer = optimizer;
}

/// Every legal row on three levels.
std::vector<std::array<std::string, 4>> legal_rows() {
  const std::vector<std::string> names = {"none", "package", "node", "all"};
  std::vector<std::array<std::string, 4>> rows;
  for (size_t w = 0; w < 4; ++w)
    for (size_t g = w; g < 4; ++g)
      for (size_t o = g; o < 4; ++o)
        for (size_t s = 0; s < std::max<size_t>(w, 1); ++s) rows.push_back({names[w], names[s], names[g], names[o]});
  return rows;
}

class Trees : public testing::TestWithParam<Tree> {};
INSTANTIATE_TEST_SUITE_P(OfEight, Trees,
                         testing::Values(Tree{{2, 2, 2}}, Tree{{2, 4, 1}}, Tree{{4, 1, 2}}, Tree{{8, 1, 1}},
                                         Tree{{1, 2, 4}}),
                         [](const auto& i) {
                           std::string name;
                           for (int64_t width : i.param.widths) name += std::to_string(width);
                           return name;
                         });

TEST_P(Trees, EveryLegalPlacementGivesTheSameBits) {
  Outcome first;
  for (const auto& [weights, secondary, gradients, optimizer] : legal_rows()) {
    job::Job job = small(model::Family::llama, GetParam().widths, 1);
    place(job, weights, secondary, gradients, optimizer);
    const Outcome outcome = train(job, 3);
    if (first.losses.empty()) first = outcome;
    EXPECT_EQ(outcome, first) << weights << ' ' << secondary << ' ' << gradients << ' ' << optimizer;
  }
}

TEST(Layouts, ATiedTableSumsTheSameInEveryPlacement) {
  Outcome first;
  for (const char* preset : {"ddp", "zero1", "zero2", "zero3", "hsdp"}) {
    job::Job job = small(model::Family::gpt2, {2, 2, 2}, 1);
    job.placement.preset = preset;
    const Outcome outcome = train(job, 3);
    if (first.losses.empty()) first = outcome;
    EXPECT_EQ(outcome, first) << preset;
  }
}

TEST(Layouts, PrefetchOverlapReshardResidenceAndHopsChangeNoBit) {
  for (const char* preset : {"zero3", "zeropp", "zero-topo"}) {
    job::Job job = small(model::Family::gpt_neox, {2, 2, 2}, 3);
    job.placement.preset = preset;
    for (job::WireChoice& wire : job.placement.wires) wire.everywhere = job::Wire::full;
    const Outcome first = train(job, 3);
    for (int64_t depth : {0, 1, 3, 4}) {
      job.schedule.prefetch = depth;
      EXPECT_EQ(train(job, 3), first) << preset << ", prefetch " << depth;
    }
    for (int64_t units : {0, 2}) {
      job.schedule.overlap = units;
      EXPECT_EQ(train(job, 3), first) << preset << ", overlap " << units;
    }
    job.schedule.prefetch_bytes = 1 << 20;
    EXPECT_EQ(train(job, 3), first);
    job.placement.reshard_after_forward = false;
    EXPECT_EQ(train(job, 3), first);
    job.placement.resident = 60000;  // the layers
    EXPECT_EQ(train(job, 3), first);
    job.placement.hops.fill({{"package", "node", "system"}});
    EXPECT_EQ(train(job, 3), first);
    job.placement.hops.fill({{"package"}, {"node", "system"}});
    EXPECT_EQ(train(job, 3), first);
  }
}

TEST(Layouts, PlacementsWithAccumulationAgreeTo1e5Over50Steps) {
  // With a table for the head and with one that it shares: there, only some of the head's gradient is reduced at once.
  for (const model::Family family : {model::Family::llama, model::Family::gpt2}) {
    Outcome first;
    for (const char* preset : {"ddp", "zero1", "zero2", "zero3", "hsdp", "zeropp", "zero-topo"}) {
      job::Job job = small(family, {2, 2, 2}, 3);
      job.optimizer.lr = 1e-3;
      job.placement.preset = preset;
      for (job::WireChoice& wire : job.placement.wires) wire.everywhere = job::Wire::full;
      const Outcome outcome = train(job, 50);
      if (first.losses.empty()) first = outcome;
      for (size_t s = 0; s < first.losses.size(); ++s) {
        EXPECT_NEAR(outcome.losses[s], first.losses[s], 1e-5 * first.losses[s]) << preset << ", step " << s;
        // Sums of other brackets differ in their last bits, and training spreads that.
        EXPECT_NEAR(outcome.norms[s], first.norms[s], (s == 0 ? 1e-6 : 1e-3) * first.norms[s])
            << preset << ", step " << s;
      }
    }
  }
}

TEST(Layouts, FlatRingsAndQuantisedWiresStayClose) {
  job::Job job = small(model::Family::llama, {2, 2, 2}, 2);
  job.optimizer.lr = 1e-3;
  job.placement.preset = "zero3";
  const Outcome full = train(job, 10);
  const auto close = [&](const char* what, double bound) {
    const Outcome outcome = train(job, 10);
    ASSERT_EQ(outcome.losses.size(), full.losses.size());
    for (size_t s = 0; s < full.losses.size(); ++s)
      EXPECT_NEAR(outcome.losses[s], full.losses[s], bound * full.losses[s]) << what << ", step " << s;
  };
  job.placement.collectives = job::Collectives::flat;
  close("flat", 1e-5);
  for (const char* preset : {"zeropp", "zero-topo"})
    for (const auto collectives : {job::Collectives::levels, job::Collectives::flat})
      for (const auto rounding : {job::Rounding::nearest, job::Rounding::stochastic})
        for (const bool feedback : {false, true}) {
          job.placement.preset = preset;
          job.placement.collectives = collectives;
          job.placement.rounding = rounding;
          job.placement.error_feedback = feedback;
          close(preset, 1e-2);
        }
}

TEST(Layouts, SixteenBitsWithEveryPreset) {
  Outcome first;
  for (const char* preset : {"ddp", "zero1", "zero2", "zero3", "hsdp", "zeropp", "zero-topo"}) {
    job::Job job = small(model::Family::gpt2, {2, 2, 2}, 2);
    job.precision.compute = DType::bf16;
    job.precision.gradients = DType::bf16;
    job.optimizer.lr = 1e-3;
    job.placement.preset = preset;
    const Outcome outcome = train(job, 6);
    if (first.losses.empty()) first = outcome;
    for (size_t s = 0; s < first.losses.size(); ++s)
      EXPECT_NEAR(outcome.losses[s], first.losses[s], 1e-2 * first.losses[s]) << preset << ", step " << s;
  }
}

}  // namespace
}  // namespace strata::train
