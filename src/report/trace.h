#pragma once
// trace-step-N.json: the timeline of one step on all ranks, for Perfetto (ui.perfetto.dev) and chrome://tracing.
//
// One process a rank, one thread a stream: "compute", then a level each, by name: the outermost that its transfers cross.
// Complete events ("ph": "X") in the order of their streams, named after block or transfer and unit; times in microseconds
// from the moment at which the first rank began. args: task (number in the rank's program), unit, micro_batch (null: of none
// or of the whole step), and of transfers levels, wire, bytes and messages that this rank sends, sequence (the same on all
// ranks that take part). A counter a level shows gigabytes a second that the rank sends, as means over each transfer.
// otherData: format (1), step, ranks, clock_error_us (by rank: how far its times may be off against rank 0's, at most).
//
// The format: "Trace Event Format", Google, JSON object form.

#include <filesystem>

#include "train/observer.h"

namespace strata::report {

/// Writes the file whole or not at all; a run error naming it if that fails.
void write_trace(const std::filesystem::path& path, const train::TimelineReport& timeline);

/// What people want to know first of a traced step.
struct TraceSummary {
  double seconds = 0;          ///< from the first task's begin to the last one's end, over all ranks
  double least = 0, most = 0;  ///< share of it that a rank computes
  size_t least_rank = 0, most_rank = 0;
};
TraceSummary summarise(const train::TimelineReport& timeline);

/// Writes each traced step to the run's folder. A run from step 0 moves an older run's traces of the same steps aside
/// (run_files.h).
class TraceFiles : public train::Observer {
 public:
  void on_start(const train::RunStart& start) override;
  void on_timeline(const train::TimelineReport& timeline) override;

 private:
  std::filesystem::path folder_;
};

}  // namespace strata::report
