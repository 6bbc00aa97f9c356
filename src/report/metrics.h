#pragma once
// metrics.jsonl: a run as JSON Lines, one object a record, told apart by "record".
//
//   start       format (1), job_digest, model, parameters, batch, ranks, levels (of the machine, innermost first: name and
//               width; null if not known), placement (weights, secondary, gradients, optimizer: the level over which ranks
//               share one copy, null: each has its own; wires, in words; null if not known), steps, first_step, device, folder,
//               memory_planned (bytes), flops (both formulas, what they give, the peak and its name), job (every key)
//   step        step, loss, grad_norm, clip_factor, skipped, learning_rate, tokens, total_tokens, tokens_per_s,
//               seconds, model_tflops, hardware_tflops, memory_planned, memory_allocated, memory_resident, allocations,
//               library_allocations
//   validation  step, loss, tokens, seconds
//   saved       step, folder
//   traffic     before the end, of runs on several ranks: step, entries (level, purpose, wire, bytes, messages,
//               planned_bytes, planned_messages), bytes, messages, planned_bytes, planned_messages (of all entries),
//               as_planned. Sums over all ranks and the whole run, counted at the send; planned: what the step programs
//               list for the runs that were made
//   end         step, seconds, interrupted, saved; a file without it belongs to a run that goes on or was killed
//
// Every record ends with "time", seconds since 1970. Keys are stable: they are always there, null where nothing is
// known. A number that is not finite is null, and KEY_text beside it says "nan", "inf" or "-inf". Memory is in bytes;
// model_tflops and hardware_tflops are 10^12 a second and rank, counted as the start record says.
//
// A run from step 0 never writes into an older run's file: that one is moved aside (run_files.h). A resumed run
// appends, beginning with a start record of its own: step records of steps after its first_step that stand before it
// were undone.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "report/append_file.h"
#include "report/flops.h"
#include "train/observer.h"

namespace strata::report {

/// Every record is in the file before the callback returns. A failed write is a run error naming the file.
class Metrics : public train::Observer {
 public:
  explicit Metrics(Peak peak = {});
  void on_start(const train::RunStart& start) override;
  void on_step(const train::StepReport& step) override;
  void on_validation(const train::ValidationReport& validation) override;
  void on_saved(int64_t step, const std::filesystem::path& folder) override;
  void on_end(const train::RunEnd& end) override;

 private:
  Peak peak_;
  train::RunStart start_;  // its pointers are cleared
  std::vector<std::string> level_names_;
  std::unique_ptr<AppendFile> file_;
};

}  // namespace strata::report
