#include "job/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "job_text.h"

namespace strata::job {
namespace {

using testing::HasSubstr;

Job job_with(int64_t global, int64_t micro, int64_t tensor = 1, int64_t pipeline = 1) {
  Job job;
  job.batch = {.global = global, .micro = micro, .sequence = 8};
  job.mesh.tensor = tensor;
  job.mesh.pipeline = pipeline;
  return job;
}

std::string message(const Job& job, int64_t ranks) {
  try {
    resolve_batch(job, ranks, "job.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(Batch, WorksOut) {
  const BatchPlan plan = resolve_batch(job_with(512, 4), 4);
  EXPECT_EQ(plan.accumulation, 32);
  EXPECT_EQ(plan.data_parallel, 4);
  EXPECT_EQ(describe(plan),
            "512 sequences = 4 micro x 32 accumulation x 4 data-parallel ranks (4 ranks / 1 tensor / 1 pipeline)");
  // GPT-NeoX-20B as it was trained: 96 ranks.
  const BatchPlan neox = resolve_batch(job_with(1536, 4, 2, 4), 96);
  EXPECT_EQ(neox.data_parallel, 12);
  EXPECT_EQ(neox.accumulation, 32);
  EXPECT_EQ(resolve_batch(job_with(1, 1), 1).accumulation, 1);
}

TEST(Batch, TheEquationAndTheNearestFixesAreInTheMessage) {
  const std::string text = message(job_with(500, 4), 4);
  EXPECT_THAT(
      text, HasSubstr("job.toml: batch.global 500 = batch.micro 4 x accumulation x 4 data-parallel ranks (4 ranks / 1 "
                      "tensor / 1 pipeline) gives accumulation = 31.25, which is not whole"));
  EXPECT_THAT(text, HasSubstr("batch.global = 496 (accumulation 31) or 512 (accumulation 32)"));
  EXPECT_THAT(text, HasSubstr("batch.micro = 5 or 1"));
  EXPECT_THAT(text, HasSubstr("5 or 1 ranks"));
}

TEST(Batch, TooManyRanksForTheBatch) {
  const std::string text = message(job_with(8, 2), 16);
  EXPECT_THAT(text, HasSubstr("gives accumulation = 0.25, which is not at least 1"));
  EXPECT_THAT(text, HasSubstr("batch.global = 32 (accumulation 1)"));
  EXPECT_THAT(text, HasSubstr("4 ranks"));
}

TEST(Batch, RanksThatTheModelParallelDegreesDoNotDivide) {
  const std::string text = message(job_with(512, 4, 3, 2), 16);
  EXPECT_THAT(text, HasSubstr("data-parallel ranks = 16 ranks / 3 tensor / 2 pipeline = 2.66667, which is not whole"));
  EXPECT_THAT(text, HasSubstr("12 or 18 ranks"));
  EXPECT_THAT(text, HasSubstr("mesh.tensor = 2 or 4"));
  EXPECT_THAT(message(job_with(512, 4, 8, 1), 4), HasSubstr("8 ranks"));
  EXPECT_THAT(message(job_with(512, 4), 0), HasSubstr("0 ranks"));
}

// Whatever the message proposes must itself work.
TEST(Batch, ProposedFixesWork) {
  for (int64_t global : {1, 7, 12, 30, 96, 97})
    for (int64_t micro : {1, 2, 3, 5, 8})
      for (int64_t ranks : {1, 2, 3, 4, 6, 9, 16}) {
        const Job job = job_with(global, micro);
        std::string text;
        try {
          const BatchPlan plan = resolve_batch(job, ranks);
          EXPECT_EQ(plan.micro * plan.accumulation * plan.data_parallel, global);
          continue;
        } catch (const Error& error) {
          text = error.what();
        }
        text = text.substr(text.find("nearest that work: "));
        int proposals = 0;
        const auto each = [&](const std::string& pattern, auto&& with) {
          const std::regex expression(pattern);
          for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
            for (size_t group = 1; group < match->size(); ++group)
              if ((*match)[group].matched) {
                ++proposals;
                EXPECT_NO_THROW(with(std::stoll((*match)[group]))) << text;
              }
        };
        each("(\\d+) \\(accumulation \\d+\\)", [&](int64_t value) { resolve_batch(job_with(value, micro), ranks); });
        each("batch.micro = (\\d+)(?: or (\\d+))?",
             [&](int64_t value) { resolve_batch(job_with(global, value), ranks); });
        each("or (\\d+)(?: or (\\d+))? ranks", [&](int64_t value) { resolve_batch(job, value); });
        EXPECT_GT(proposals, 0) << text;
      }
}

TEST(Batch, LargeNumbersDoNotOverflow) {
  const int64_t largest = 2147483647;
  EXPECT_THROW(resolve_batch(job_with(largest, largest), largest), Error);
  EXPECT_THROW(resolve_batch(job_with(largest, largest, largest, largest), 8), Error);
  EXPECT_EQ(resolve_batch(job_with(largest, largest), 1).accumulation, 1);
  EXPECT_THROW(resolve_batch(job_with(8, 1), INT64_MAX), Error);
}

}  // namespace
}  // namespace strata::job
