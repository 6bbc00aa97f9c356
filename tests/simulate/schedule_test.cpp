// The schedule of a program: bounds that hold whatever the prices, and overlap where the program allows it.

#include "simulate/schedule.h"

#include <gtest/gtest.h>

#include <numeric>

#include "../step/small_job.h"
#include "step/build.h"
#include "step/exposed.h"

namespace strata::simulate {
namespace {

constexpr int64_t ranks = 8;

job::Job on_tree(const char* preset, int64_t micro_batches) {
  job::Job job = step::small_job(model::Family::llama);
  job.model.layers = 6;
  job.mesh.levels = {{"package", 2}, {"node", 2}, {"system", 2}};
  job.batch = {.global = ranks * micro_batches, .micro = 1, .sequence = 32};
  job.placement.preset = preset;
  if (job.placement.preset == "hsdp") job.placement.level = "node";
  return job;
}

step::Program build(const job::Job& job) {
  const auto planner = device::make_planner(1);
  return step::build({.job = job, .ranks = ranks, .rank = 3}, step::Goal::train, *planner);
}

bool computes(const step::Program& program, size_t task) { return program.block_of(program.tasks[task]) != nullptr; }

/// Every operation's task lasts `compute`, every transfer `transfer`.
std::vector<double> seconds(const step::Program& program, double compute, double transfer) {
  std::vector<double> result;
  for (size_t t = 0; t < program.tasks.size(); ++t) result.push_back(computes(program, t) ? compute : transfer);
  return result;
}

TEST(Schedule, KeepsStreamsInOrderAndWaitsForWhatComesBefore) {
  for (const char* preset : {"ddp", "zero1", "zero3", "hsdp", "zeropp", "zero-topo"}) {
    const step::Program program = build(on_tree(preset, 3));
    const step::Timeline timeline = schedule(program, seconds(program, 1, 0.3));
    std::vector<double> free(program.widths.size() + 1);
    for (size_t t = 0; t < timeline.size(); ++t) {
      const step::Task& task = program.tasks[t];
      EXPECT_GE(timeline[t].begin, free[static_cast<size_t>(task.stream)]);
      for (int32_t e = task.after.begin; e < task.after.end; ++e)
        EXPECT_GE(timeline[t].begin, timeline[static_cast<size_t>(program.edges[static_cast<size_t>(e)])].end);
      free[static_cast<size_t>(task.stream)] = timeline[t].end;
    }
  }
}

TEST(Schedule, WhatIsToldOfAStepAddsUpToIt) {
  for (const char* preset : {"ddp", "zero2", "zero3", "hsdp", "zeropp", "zero-topo"})
    for (const double transfer : {0.0, 0.4, 3.0}) {
      const step::Program program = build(on_tree(preset, 2));
      const step::StepTime time = step::step_time(program, schedule(program, seconds(program, 1, transfer)));
      double exposed = 0;
      for (const step::Exposed& each : time.exposed) {
        EXPECT_GT(each.seconds, 0);
        exposed += each.seconds;
      }
      EXPECT_NEAR(time.computing + time.idle + exposed, time.seconds, 1e-9) << preset;
      EXPECT_NEAR(time.idle, 0, 1e-9) << preset;  // nothing waits for the host in a schedule
      EXPECT_EQ(exposed > 0, transfer > 0) << preset;
    }
}

TEST(Schedule, WhatNothingHidIsLaidToWhatWasSlow) {
  for (const char* preset : {"ddp", "zero2", "zero3", "hsdp", "zeropp", "zero-topo"}) {
    const step::Program program = build(on_tree(preset, 2));
    for (int p = 0; p < step::purposes; ++p) {
      const auto purpose = static_cast<step::Purpose>(p);
      std::vector<double> slow = seconds(program, 1, 0);
      bool there = false;
      for (size_t t = 0; t < program.tasks.size(); ++t)
        if (const auto* transfer = std::get_if<step::Transfer>(&program.tasks[t].work);
            transfer && transfer->purpose == purpose)
          slow[t] = 1000, there = true;
      const step::StepTime time = step::step_time(program, schedule(program, slow));
      ASSERT_EQ(time.exposed.empty(), !there) << preset << ' ' << step::name_of(purpose);
      for (const step::Exposed& each : time.exposed) EXPECT_EQ(each.purpose, purpose) << preset;
    }
  }
}

/// What communication adds to a step whose every transfer lasts `transfer` computing tasks.
double exposed(job::Job job, double transfer) {
  const step::Program program = build(job);
  const step::StepTime time = step::step_time(program, schedule(program, seconds(program, 1, transfer)));
  return time.seconds - time.computing;
}

TEST(Schedule, TransfersHideBehindTheComputingThatMemoryOfTheirOwnAllows) {
  for (const char* preset : {"zero2", "zero3", "zero-topo"}) {
    // Short transfers: only those before the first task, after the last backward and around the update show, however
    // many micro-batches there are.
    const double short_one = 0.1;
    const double once = exposed(on_tree(preset, 1), short_one);
    EXPECT_NEAR(exposed(on_tree(preset, 5), short_one), once, 12 * short_one) << preset;
    // Without memory of their own, each unit waits for the gradients of the one before.
    job::Job shared = on_tree(preset, 5);
    shared.schedule.overlap = 0;
    EXPECT_GT(exposed(shared, short_one), once + 5 * 5 * short_one) << preset;
  }
}

TEST(Schedule, OverlapCostsTheMemoryOfUnits) {
  int64_t before = 0;
  for (const int64_t overlap : {0, 1, 2}) {
    job::Job job = on_tree("zero2", 3);
    job.schedule.overlap = overlap;
    const step::Program program = build(job);
    EXPECT_GT(program.arena_bytes, before) << overlap;
    before = program.arena_bytes;
  }
}

}  // namespace
}  // namespace strata::simulate
