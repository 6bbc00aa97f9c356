#include "step/build.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "model/unit.h"
#include "small_job.h"
#include "step/check.h"
#include "step/memory.h"

namespace strata::step {
namespace {

class Build : public testing::TestWithParam<model::Family> {
 protected:
  Program program(const job::Job& job, Goal goal = Goal::train) { return build({.job = job}, goal, *planner_); }
  std::unique_ptr<device::Planner> planner_ = device::make_planner(1);
};

INSTANTIATE_TEST_SUITE_P(Families, Build,
                         testing::Values(model::Family::gpt2, model::Family::gpt_neox, model::Family::llama),
                         [](const auto& i) { return std::string(model::name_of(i.param)); });

TEST_P(Build, StatesTakeSixteenBytesAParameterWithPaddingCounted) {
  const job::Job job = small_job(GetParam());
  const Program p = program(job);
  int64_t elements = 0;
  for (const model::Unit& unit : model::units(job.model)) {
    EXPECT_EQ(unit.elements % ops::grain, 0);
    elements += unit.elements;
  }
  int64_t states = 0, gradients = 0;
  for (const Buffer& buffer : p.buffers) {
    if (buffer.kind == BufferKind::weights || buffer.kind == BufferKind::moments) states += buffer.bytes;
    if (buffer.kind == BufferKind::gradients && buffer.role == ops::Role::gradient) gradients += buffer.bytes;
  }
  EXPECT_EQ(states, 12 * elements);
  EXPECT_EQ(gradients, 4 * elements);
}

TEST_P(Build, MixedPrecisionKeepsAMasterAndEightBitMomentsTheirScales) {
  int64_t elements = 0;
  for (const model::Unit& unit : model::units(small_job(GetParam()).model)) elements += unit.elements;
  for (DType compute : {DType::f32, DType::bf16, DType::f16})
    for (int64_t block : {0, 64, 256, 2048}) {
      job::Job job = small_job(GetParam());
      job.precision.compute = compute;
      if (block > 0) job.optimizer.name = "adamw8bit", job.optimizer.block = block;
      const Program p = program(job);
      std::map<BufferKind, int64_t> bytes;
      for (const Buffer& buffer : p.buffers)
        if (buffer.role != ops::Role::tied_gradient) bytes[buffer.kind] += buffer.bytes;
      EXPECT_EQ(bytes[BufferKind::weights], elements * size_of(compute));
      EXPECT_EQ(bytes[BufferKind::master], compute == DType::f32 ? 0 : 4 * elements);
      EXPECT_EQ(bytes[BufferKind::moments], block == 0 ? 8 * elements : 2 * (elements + 4 * elements / block));
      EXPECT_EQ(bytes[BufferKind::gradients], 4 * elements);
      // Evaluation needs the weights alone, at the same place.
      for (const Buffer& buffer : program(job, Goal::evaluate).buffers) {
        EXPECT_NE(buffer.kind, BufferKind::master);
        if (buffer.kind != BufferKind::weights) continue;
        EXPECT_EQ(buffer.offset, p.find(ops::Role::parameter, buffer.unit).offset);
      }
    }
}

TEST_P(Build, AttentionInsideDocumentsReadsWhereTheyBegin) {
  job::Job job = small_job(GetParam());
  EXPECT_FALSE(program(job).has(ops::Role::document_starts));
  job.data.attention_across_documents = false;
  for (Goal goal : {Goal::train, Goal::evaluate}) {
    const Program p = program(job, goal);
    int64_t buffers = 0;
    for (const Buffer& buffer : p.buffers) {
      if (buffer.role != ops::Role::document_starts) continue;
      ++buffers;
      EXPECT_EQ(buffer.bytes, 4 * p.batch * p.sequence);
    }
    EXPECT_EQ(buffers, p.micro_batches);  // one for all layers
    for (const Block& block : p.blocks)
      for (const ops::Op& op : block.ops) {
        const size_t least = op.kind == ops::Kind::attention ? 1 : 4;
        if (op.kind == ops::Kind::attention || op.kind == ops::Kind::attention_backward) {
          EXPECT_EQ(op.in.size(), least + 1);
        }
      }
  }
}

TEST_P(Build, EqualLayersShareOneBlock) {
  const Program p = program(small_job(GetParam()));
  int layer_forwards = 0, runs = 0;
  for (const Block& block : p.blocks) layer_forwards += block.name == "layer/forward";
  for (const Task& task : p.tasks) runs += p.block_of(task)->name == "layer/forward";
  EXPECT_EQ(layer_forwards, 1);
  EXPECT_EQ(runs, 3 * 2);
}

TEST_P(Build, RecomputeTradesSavedBytesForWork) {
  job::Job job = small_job(GetParam());
  std::array<int64_t, 3> saved{}, arena{};
  std::array<double, 3> flops{}, remade{};
  for (auto recompute : {job::Recompute::none, job::Recompute::selective, job::Recompute::full}) {
    job.schedule.recompute = recompute;
    const Program p = program(job);
    const auto i = static_cast<size_t>(recompute);
    for (const Buffer& buffer : p.buffers)
      if (buffer.kind == BufferKind::saved && buffer.unit == 1 && buffer.micro_batch == 0) saved[i] += buffer.bytes;
    flops[i] = p.flops();
    remade[i] = p.recompute_flops();
    arena[i] = p.arena_bytes;
  }
  EXPECT_EQ(remade[0], 0);
  EXPECT_GT(saved[0], saved[1]);
  EXPECT_GT(saved[1], 0);
  EXPECT_EQ(saved[2], 0);
  EXPECT_LT(flops[0], flops[1]);
  EXPECT_LT(flops[1], flops[2]);
  EXPECT_DOUBLE_EQ(flops[1] - flops[0], remade[1]);
  EXPECT_DOUBLE_EQ(flops[2] - flops[0], remade[2]);
  EXPECT_GT(arena[0], arena[2]);
}

TEST_P(Build, GoalsShareTheFrontOfTheArena) {
  const job::Job job = small_job(GetParam());
  const Program train = program(job), evaluate = program(job, Goal::evaluate), generate = program(job, Goal::generate);
  EXPECT_GT(train.persistent_bytes, evaluate.persistent_bytes);
  for (const Program* other : {&evaluate, &generate})
    for (const Buffer& buffer : other->buffers)
      if (buffer.kind == BufferKind::weights || buffer.kind == BufferKind::constant) {
        EXPECT_EQ(buffer.offset, train.find(buffer.role, buffer.unit).offset);
        EXPECT_EQ(buffer.bytes, train.find(buffer.role, buffer.unit).bytes);
      }
  for (const Task& task : evaluate.tasks) EXPECT_EQ(evaluate.block_of(task)->phase, Phase::forward);
}

TEST_P(Build, PeakIsTheArena) {
  const Program p = program(small_job(GetParam()));
  const MemoryPeak peak = memory_peak(p);
  EXPECT_EQ(peak.alive_bytes + peak.unused_bytes, p.arena_bytes);
  EXPECT_LE(peak.unused_bytes, p.arena_bytes / 10);
}

TEST_P(Build, FlopsFollowTheClosedForm) {
  // Matrix products: forward 2 per weight and token, backward twice that; the padded head counted; attention 2 + 5 causal
  // products. What else the blocks do is small beside it.
  const job::Job job = small_job(GetParam());
  const Program p = program(job);
  double gemm = 0;
  for (const Task& task : p.tasks) gemm += p.block_of(task)->cost.gemm_flops;
  const model::Config& m = job.model;
  const double tokens = 8 * 32;
  double weights = static_cast<double>(m.padded_vocab() * m.hidden);
  for (const model::Unit& unit : model::units(m))
    if (unit.kind == model::UnitKind::layer)
      for (const model::Parameter& q : unit.parameters)
        if (q.matrix()) weights += static_cast<double>(q.shape.elements());
  const double attention = 7 * 2 * tokens * (32 + 1) / 2.0 * static_cast<double>(m.heads * m.head_dim * m.layers);
  EXPECT_NEAR(gemm, 6 * weights * tokens + attention, 1);
}

TEST_P(Build, LaterMicroBatchesAddWhereTheFirstOverwrites) {
  const Program p = program(small_job(GetParam()));
  int overwriting = 0, adding = 0;
  for (const Block& block : p.blocks) {
    if (block.phase != Phase::backward) continue;
    const bool first = block.name.ends_with("first");
    for (const ops::Op& op : block.ops) {
      bool gradient = false;
      for (int out : op.out) {
        const ops::Role role = block.tensors[static_cast<size_t>(out)].role;
        gradient = gradient || role == ops::Role::gradient || role == ops::Role::tied_gradient;
      }
      if (!gradient || op.kind == ops::Kind::fill_zero) continue;
      EXPECT_EQ(op.accumulate, !first) << block.name << " " << ops::name_of(op.kind);
      ++(op.accumulate ? adding : overwriting);
    }
  }
  EXPECT_GT(overwriting, 5);
  EXPECT_EQ(overwriting, adding);
}

TEST_P(Build, EveryByteOfTheGradientIsWrittenByTheFirstBackward) {
  const job::Job job = small_job(GetParam());
  const Program p = program(job);
  for (const model::Unit& unit : model::units(job.model)) {
    for (const Block& block : p.blocks) {
      if (block.name != std::string(model::name_of(unit.kind)) + "/backward first") continue;
      std::vector<int> writes(static_cast<size_t>(unit.elements), 0);
      for (const ops::Op& op : block.ops)
        for (int out : op.out) {
          const ops::Tensor& t = block.tensors[static_cast<size_t>(out)];
          if (t.role != ops::Role::gradient) continue;
          for (int64_t i = 0; i < t.shape.elements(); ++i) ++writes[static_cast<size_t>(t.offset / 4 + i)];
        }
      for (int w : writes) ASSERT_EQ(w, 1) << unit.name;
    }
  }
}

TEST(BuildLarge, A175BModelIsLoweredWithoutAllocatingIt) {
  job::Job job;
  job.model = job::load_preset("gpt-175b");
  job.batch = {.global = 4, .micro = 1, .sequence = 2048};
  const auto planner = device::make_planner(1);
  const Program p = build({.job = job}, Goal::train, *planner);
  const double parameters = static_cast<double>(model::parameter_count(job.model));
  EXPECT_GT(static_cast<double>(p.persistent_bytes), 12 * parameters);
  EXPECT_LT(static_cast<double>(p.persistent_bytes), 12.01 * parameters);
}

TEST(Check, CatchesOverlapAndReadsOfNothing) {
  const auto planner = device::make_planner(1);
  const Program good = build({.job = small_job()}, Goal::train, *planner);
  Program overlapping = good;
  for (Buffer& buffer : overlapping.buffers)
    if (buffer.kind == BufferKind::saved) buffer.offset = overlapping.persistent_bytes;
  EXPECT_THROW(check(overlapping), std::logic_error);
  Program unordered = good;
  std::swap(unordered.tasks[0], unordered.tasks[1]);
  EXPECT_THROW(check(unordered), std::logic_error);
}

}  // namespace
}  // namespace strata::step
