#pragma once
// What a run tells while it goes on. The loop knows no printer, file or chart: report/ listens.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/batch.h"
#include "job/job.h"
#include "step/program.h"
#include "step/timeline.h"
#include "step/traffic.h"

namespace strata::train {

/// Known before the first step.
struct RunStart {
  const job::Job* job = nullptr;
  job::BatchPlan batch;
  std::filesystem::path folder;  ///< the run's files
  int64_t parameters = 0;
  std::string device;                ///< Device::description()
  int64_t first_step = 0;            ///< 0 unless resumed
  int64_t planned_bytes = 0;         ///< arena of the largest program
  double model_flops_per_token = 0;  ///< model::train_flops_per_token: recompute not counted
  double program_flops = 0;  ///< one step of the train program, mean over ranks, recompute counted, causal half only
  double program_recompute_flops = 0;      ///< the part spent on remaking
  const step::Program* program = nullptr;  ///< goal train
  int64_t rank = 0, ranks = 1;
};

/// After each step.
struct StepReport {
  int64_t step = 0;          ///< from 1: steps done
  int64_t tokens = 0;        ///< in this step, over all ranks
  int64_t total_tokens = 0;  ///< since the start of the run, resumed part included
  double seconds = 0;        ///< the whole step, reading data included
  double loss = 0;           ///< mean over the global batch's tokens that count, before the update
  double grad_norm = 0;      ///< before clipping
  double clip_factor = 1;
  bool skipped = false;  ///< gradients were not finite; nothing was updated
  double learning_rate = 0;
  double loss_scale = 1;        ///< that this step's gradients were computed with
  int64_t allocated_bytes = 0;  ///< device memory held, peak so far
  int64_t resident_bytes = 0;   ///< of the process, peak so far
  int64_t allocations = -1;     ///< heap allocations by Strata's code inside the step program; -1: not counted
  int64_t library_allocations = -1;
};

struct ValidationReport {
  int64_t step = 0;
  double loss = 0;  ///< mean over the validation batches' tokens
  int64_t tokens = 0;
  double seconds = 0;
};

struct RunEnd {
  int64_t step = 0;
  int64_t skipped = 0;            ///< steps whose gradients overflowed
  double loss = 0;                ///< of the last step
  double seconds = 0;             ///< wall clock of the loop
  bool interrupted = false;       ///< stopped by a signal after a clean save
  step::Traffic sent{};           ///< by all ranks: counted at the send
  step::Traffic planned{};        ///< by all ranks: the programs' own count of the runs that were made
  std::filesystem::path saved{};  ///< the last saved model; empty if none
};

/// What one rank did when in a traced step.
struct RankTimeline {
  double clock_error = 0;  ///< seconds; how far this rank's times may be off against rank 0's at most
  std::vector<step::TaskLabel> tasks{};
  step::Timeline spans{};  ///< one a task; seconds from the moment at which the first rank began the step's program
};

/// A step of run.trace on all ranks, on rank 0's clock.
struct TimelineReport {
  int64_t step = 0;
  std::vector<std::string> level_names{};   ///< of the machine, innermost first
  std::vector<std::string> stream_names{};  ///< of a rank's program
  std::vector<RankTimeline> ranks{};
};

/// Callbacks come from rank 0's loop, in order; exceptions end the run.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_start(const RunStart&) {}
  virtual void on_step(const StepReport&) {}
  virtual void on_timeline(const TimelineReport&) {}  ///< after on_step, on rank 0 only
  virtual void on_validation(const ValidationReport&) {}
  virtual void on_saved(int64_t step, const std::filesystem::path& folder) { (void)step, (void)folder; }
  virtual void on_end(const RunEnd&) {}
};

}  // namespace strata::train
