#include "train/layouts.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "step/small_job.h"

namespace strata::train {
namespace {

job::Job small() {
  job::Job job = step::small_job(model::Family::gpt2);
  job.model.layers = 2;
  job.batch.sequence = 16;
  job.optimizer.lr = 1e-2;
  return job;
}

TEST(VerifyLayouts, EveryLayoutOfFourRanksKeepsItsPromise) {
  size_t told = 0;
  const auto rows =
      verify_layouts(small(), {.ranks = 4, .steps = 2, .micro_batches = {1, 3}}, [&](const LayoutRow&) { ++told; });
  EXPECT_EQ(told, rows.size());
  EXPECT_GT(rows.size(), 100u);
  for (const LayoutRow& row : rows) EXPECT_TRUE(row.passed()) << row.layout << ": " << row.first;
}

TEST(VerifyLayouts, RefusesWhatPromisesNoBits) {
  job::Job job = small();
  job.precision.compute = DType::bf16;
  EXPECT_THROW(verify_layouts(job, {}, [](const LayoutRow&) {}), Error);
}

}  // namespace
}  // namespace strata::train
