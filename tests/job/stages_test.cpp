// Units on pipeline stages, and axes on a machine's levels.

#include "job/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "model/forward.h"
#include "model/unit.h"

namespace strata::job {
namespace {

using testing::HasSubstr;

Job piped(int64_t layers, int64_t stages, int64_t vocab = 1000) {
  Job job;
  model::Config& m = job.model;
  m.layers = layers;
  m.hidden = 64;
  m.heads = m.kv_heads = 4;
  m.head_dim = 16;
  m.ffn = 256;
  m.vocab = vocab;
  m.sequence = job.batch.sequence = 32;
  job.mesh.pipeline = stages;
  return job;
}

TEST(ChunkUnits, OwnEveryUnitOnceInOrderWhateverTheNumbers) {
  for (const Pipeline pipeline : {Pipeline::one_f_one_b, Pipeline::interleaved, Pipeline::zb_v})
    for (int64_t layers = 1; layers < 12; ++layers)
      for (int64_t stages = 1; stages <= layers + 2; ++stages) {
        Job job = piped(layers, stages);
        job.schedule.pipeline = pipeline;
        const auto chunks = static_cast<size_t>(stages) * static_cast<size_t>(chunks_a_stage(job));
        if (static_cast<int64_t>(chunks) > layers + 2) {
          EXPECT_THROW(chunk_units(job), Error);
          continue;
        }
        const auto ranges = chunk_units(job);
        ASSERT_EQ(ranges.size(), chunks);
        int32_t next = 0;
        for (const UnitRange& range : ranges) {
          EXPECT_EQ(range.first, next);
          EXPECT_GT(range.last, range.first);
          next = range.last;
        }
        EXPECT_EQ(next, layers + 2);
      }
}

TEST(ChunkUnits, CostAsLittleAsAnyCutAndCountTheHead) {
  // A head as dear as several layers gets fewer of them.
  Job job = piped(9, 3, 50000);
  const auto units = model::units(job.model);
  const auto dearest = [&](const std::vector<UnitRange>& ranges) {
    double most = 0;
    for (const UnitRange& range : ranges) {
      double sum = 0;
      for (int32_t u = range.first; u < range.last; ++u)
        sum += model::unit_flops_per_token(job.model, units[static_cast<size_t>(u)], job.batch.sequence);
      most = std::max(most, sum);
    }
    return most;
  };
  const auto chosen = chunk_units(job);
  for (int32_t a = 1; a < 10; ++a)
    for (int32_t b = a + 1; b < 11; ++b) EXPECT_LE(dearest(chosen), dearest({{0, a}, {a, b}, {b, 11}}) * (1 + 1e-12));
  EXPECT_LT(chosen[2].last - chosen[2].first, 4);
  job = piped(8, 4, 16);
  EXPECT_EQ(chunk_units(job), (std::vector<UnitRange>{{0, 3}, {3, 5}, {5, 7}, {7, 10}}));
}

TEST(ChunkUnits, FollowALayoutAndNameWhatIsWrongWithOne) {
  Job job = piped(5, 2);
  for (const char* good : {"embedding 0-1 | 2-4 head", "embedding, 0, 1 | 2, 3, 4, head", "embedding 0 1|2-3 4 head"}) {
    job.schedule.layout = good;
    EXPECT_EQ(chunk_units(job), (std::vector<UnitRange>{{0, 3}, {3, 7}})) << good;
  }
  const auto said = [&](const char* layout) -> std::string {
    job.schedule.layout = layout;
    try {
      chunk_units(job, "job.toml:3: schedule.layout");
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(said("embedding 0-1 | 3-4 head"),
              HasSubstr("job.toml:3: schedule.layout: layer 2 is left out before layer 3"));
  EXPECT_THAT(said("embedding 0-2 | 2-4 head"), HasSubstr("layer 2 comes again"));
  EXPECT_THAT(said("0-2 | 3-4 head"), HasSubstr("embedding is left out before layer 0"));
  EXPECT_THAT(said("embedding 0-2 | 3-4"), HasSubstr("head is left out at the end"));
  EXPECT_THAT(said("embedding 0-2 | 3 | 4 head"), HasSubstr("3 chunks, but mesh.pipeline = 2 with 1 a stage makes 2"));
  EXPECT_THAT(said("embedding 0-4 head |"), HasSubstr("chunk 2 has no unit"));
  EXPECT_THAT(said("embedding 0-5 | head"), HasSubstr("\"5\" is no layer of 5 (0 to 4)"));
  EXPECT_THAT(said("embedding 2-0 | head"), HasSubstr("ends before it begins"));
  EXPECT_THAT(said("embedding zero | head"), HasSubstr("\"zero\" is no layer"));
}

TEST(MeshOf, NamesDegreesThatFit) {
  Job job = piped(5, 3);
  const std::vector<machine::Level> levels = {{"package", 2}, {"node", 4}, {"system", 6}};
  EXPECT_EQ(mesh_of(job, levels).widths(layout::Axis::pipeline), (layout::Widths{1, 1, 3}));
  job.mesh.tensor = 3;
  try {
    mesh_of(job, levels);
    FAIL() << "a tensor degree of 3 across packages of 2";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("mesh.tensor = 3, mesh.pipeline = 3 do not fit 2 package x 4 node x 6 system"));
    EXPECT_THAT(error.what(), HasSubstr("mesh.tensor = 2 or mesh.tensor = 4"));
  }
}

}  // namespace
}  // namespace strata::job
