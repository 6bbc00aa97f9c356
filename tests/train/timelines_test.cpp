#include "train/timelines.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/local.h"
#include "step/small_job.h"
#include "train/clock.h"
#include "train/runner.h"

namespace strata::train {
namespace {

TEST(Clock, ErrorBoundsHoldWhereTheTruthIsKnown) {
  std::vector<ClockOffset> offsets;
  comm::on_local_ranks(4, [&](comm::Transport& transport) {
    comm::Control control(transport, 60);
    // Each rank's clock is some hours behind the one before it.
    const int64_t behind = transport.rank() * int64_t{10'000'000'000'000};
    const auto measured = measure_clocks(control, [&] { return steady_nanoseconds() - behind; });
    if (transport.rank() == 0)
      offsets = measured;
    else
      EXPECT_TRUE(measured.empty());
  });
  ASSERT_EQ(offsets.size(), 4u);
  EXPECT_EQ(offsets[0].nanoseconds, 0);
  EXPECT_EQ(offsets[0].error, 0);
  for (int64_t rank = 1; rank < 4; ++rank) {
    const ClockOffset& offset = offsets[static_cast<size_t>(rank)];
    EXPECT_GT(offset.error, 0);
    EXPECT_LE(std::abs(offset.nanoseconds - rank * int64_t{10'000'000'000'000}), offset.error) << "rank " << rank;
  }
}

TEST(Timelines, OneRankNeedsNoOneElse) {
  const job::Job job = step::small_job();
  const auto device = device::make_cpu(1);
  Runner runner(job, *device, {.train = true});
  runner.initialise(1);
  const step::Program& program = runner.program(step::Goal::train);
  const std::vector<int32_t> tokens(static_cast<size_t>(job.batch.micro * (job.batch.sequence + 1)), 5);
  for (int m = 0; m < program.micro_batches; ++m) runner.fill(step::Goal::train, m, tokens, m * job.batch.micro);
  runner.train_step(step_inputs(job, 0, 0, job.batch.global * job.batch.sequence, 1e-3));

  const TimelineReport report = collect_timelines(nullptr, runner.executor(step::Goal::train), 1);
  ASSERT_EQ(report.ranks.size(), 1u);
  EXPECT_EQ(report.step, 1);
  EXPECT_EQ(report.ranks[0].clock_error, 0);
  ASSERT_EQ(report.ranks[0].spans.size(), program.tasks.size());
  ASSERT_EQ(report.ranks[0].tasks.size(), program.tasks.size());
  EXPECT_STREQ(report.ranks[0].tasks[1].name.data(), "layers.0 forward");
  EXPECT_FALSE(report.ranks[0].tasks[1].transfer());
  double last = 0;
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const step::Span& span = report.ranks[0].spans[t];
    EXPECT_EQ(span.task, static_cast<step::TaskId>(t));
    EXPECT_GE(span.begin, last);
    EXPECT_GE(span.end, span.begin);
    last = span.end;
  }
}

}  // namespace
}  // namespace strata::train
