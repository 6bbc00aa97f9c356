// Pipelines mean the same as one stage: the same bits in fp32 over depth, schedule and recompute, at any number of micro-batches,
// and over placements within them as far as those agree among themselves.

#include <gtest/gtest.h>

#include "job/stages.h"
#include "layout/small_run.h"
#include "step/check.h"

namespace strata::train {
namespace {

using job::Pipeline;

constexpr Pipeline schedules[] = {Pipeline::gpipe, Pipeline::one_f_one_b, Pipeline::interleaved, Pipeline::zb_h1,
                                  Pipeline::zb_v};

/// `data` ranks a package, `stages` of them.
job::Job piped(model::Family family, int64_t data, int64_t stages, int64_t micro_batches) {
  job::Job job = small(family, {data, stages}, micro_batches);
  job.model.layers = 3;
  job.mesh.pipeline = stages;
  job.batch.global = data * micro_batches;
  return job;
}

TEST(Pipelines, DepthAndScheduleChangeNoBit) {
  for (const model::Family family : {model::Family::llama, model::Family::gpt2, model::Family::gpt_neox})
    for (const int64_t micro_batches : {1, 4, 7}) {
      const Outcome first = train(piped(family, 2, 1, micro_batches), 3);
      for (const Pipeline schedule : schedules)
        for (const int64_t stages : {2, 4}) {
          job::Job job = piped(family, 2, stages, micro_batches);
          job.schedule.pipeline = schedule;
          // Five units: embedding, three layers, head.
          if (stages * job::chunks_a_stage(job) > 5) continue;
          EXPECT_EQ(train(job, 3), first)
              << job::name_of(schedule) << ", " << stages << " stages, " << micro_batches << " micro-batches";
        }
    }
}

TEST(Pipelines, RecomputeAndLayoutsChangeNoBit) {
  const Outcome first = train(piped(model::Family::llama, 1, 1, 4), 3);
  for (const Pipeline schedule : schedules)
    for (const job::Recompute recompute : {job::Recompute::selective, job::Recompute::full}) {
      job::Job job = piped(model::Family::llama, 1, 2, 4);
      job.schedule.pipeline = schedule;
      job.schedule.recompute = recompute;
      EXPECT_EQ(train(job, 3), first) << job::name_of(schedule) << ' ' << job::name_of(recompute);
    }
  for (const char* layout : {"embedding | 0-2 head", "embedding 0 1 2 | head", "embedding, 0 | 1-2 head"}) {
    job::Job job = piped(model::Family::llama, 1, 2, 4);
    job.schedule.layout = layout;
    EXPECT_EQ(train(job, 3), first) << layout;
  }
}

TEST(Pipelines, EveryPlacementWorksWithinThem) {
  for (const char* preset : {"ddp", "zero1", "zero2", "zero3", "hsdp", "zeropp", "zero-topo"}) {
    const auto with = [&](int64_t stages, int64_t micro_batches) {
      job::Job job = small(model::Family::gpt2, {2, 2, stages}, micro_batches);
      job.model.layers = 3;
      job.mesh.pipeline = stages;
      job.batch.global = 4 * micro_batches;
      job.placement.preset = preset;
      for (job::WireChoice& wire : job.placement.wires) wire.everywhere = job::Wire::full;
      return job;
    };
    for (const int64_t micro_batches : {1, 4}) {
      const Outcome first = train(with(1, micro_batches), 3);
      for (const Pipeline schedule : schedules) {
        job::Job job = with(2, micro_batches);
        job.schedule.pipeline = schedule;
        EXPECT_EQ(train(job, 3), first) << preset << ' ' << job::name_of(schedule) << ", " << micro_batches;
        job.placement.reshard_after_forward = false;
        EXPECT_EQ(train(job, 3), first) << preset << ' ' << job::name_of(schedule) << ", kept, " << micro_batches;
      }
    }
  }
}

TEST(Pipelines, MeshOrdersMeanTheSame) {
  const Outcome first = train(piped(model::Family::llama, 2, 1, 4), 3);
  job::Job job = small(model::Family::llama, {2, 2}, 4);
  job.model.layers = 3;
  job.mesh.pipeline = 2;
  job.mesh.order = {"pipeline", "data", "tensor"};
  job.batch.global = 8;
  EXPECT_EQ(train(job, 3), first);
}

TEST(Pipelines, ProgramsOfAllStagesMatchAndWaitForNobodyForEver) {
  const auto planner = device::make_planner(1);
  for (const Pipeline schedule : schedules)
    for (const int64_t stages : {2, 3, 4, 8})
      for (const int64_t micro_batches : {1, 3, 8, 13})
        for (const char* preset : {"ddp", "zero3", "zero-topo"}) {
          job::Job job = small(model::Family::gpt2, {2, 1, stages}, micro_batches);
          job.model.layers = 22;
          job.mesh.pipeline = stages;
          job.batch.global = 2 * micro_batches;
          job.placement.preset = preset;
          job.schedule.pipeline = schedule;
          std::vector<step::Program> programs;
          for (int64_t stage = 0; stage < stages; ++stage)
            programs.push_back(
                step::build({.job = job, .ranks = 2 * stages, .rank = 2 * stage}, step::Goal::train, *planner));
          EXPECT_NO_THROW(step::check_together(programs)) << job::name_of(schedule) << ", " << stages << " stages, "
                                                          << micro_batches << " micro-batches, " << preset;
        }
}

TEST(Pipelines, AMissingOrForeignMessageIsFound) {
  const auto planner = device::make_planner(1);
  job::Job job = piped(model::Family::llama, 1, 2, 3);
  std::vector<step::Program> programs;
  for (int64_t stage = 0; stage < 2; ++stage)
    programs.push_back(step::build({.job = job, .ranks = 2, .rank = stage}, step::Goal::train, *planner));
  const auto first_message = [&](step::Program& program) -> step::Transfer& {
    for (step::Task& task : program.tasks)
      if (auto* transfer = std::get_if<step::Transfer>(&task.work); transfer && transfer->message()) return *transfer;
    throw std::logic_error("no message");
  };
  EXPECT_NO_THROW(step::check_together(programs));
  auto other = programs;
  first_message(other[0]).sequence += 2;
  EXPECT_ANY_THROW(step::check_together(other));
  other = programs;
  first_message(other[1]).hop.elements /= 2;
  EXPECT_ANY_THROW(step::check_together(other));
  other = programs;
  other[1].tasks.pop_back();
  EXPECT_ANY_THROW(step::check_together(other));
}

}  // namespace
}  // namespace strata::train
