#pragma once
// TensorBoard event files, written without its libraries: scalars over steps in FOLDER/tensorboard.
//
// File: events.out.tfevents.SECONDS.HOST, with .1, .2 ... behind it if that exists. A row of records, each
//   u64 length, u32 masked crc32c(of those 8 bytes), data, u32 masked crc32c(data)    (little-endian)
// where data is a tensorflow.Event (tensorflow/core/util/event.proto, framework/summary.proto) in protobuf's wire
// format. The first event holds file_version "brain.Event:2", the second a session start, at which TensorBoard drops
// what an earlier file says about the step it names and those after it: so a resumed run replaces the steps it repeats.
//
// Tags: train/loss, train/grad_norm, train/clip_factor, train/skipped, train/learning_rate, speed/tokens_per_s,
// speed/model_tflops, speed/hardware_tflops (a rank, as in metrics.h), memory/allocated_bytes, memory/resident_bytes,
// validation/loss; at the end of a run on several ranks traffic/LEVEL_bytes, what all ranks sent over it. Values are fp32, as the format has them; metrics.jsonl is exact.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/append_file.h"
#include "report/flops.h"
#include "train/observer.h"

namespace strata::report {

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): crc32c("123456789") = 0xE3069283.
uint32_t crc32c(std::string_view bytes);

struct Scalar {
  std::string_view tag;
  float value;
};

/// One event file. A failed write is a run error naming it.
class EventFile {
 public:
  /// Creates the file in an existing folder, named after `seconds` since 1970. Steps from `first_step` + 1 on follow.
  EventFile(const std::filesystem::path& folder, double seconds, int64_t first_step);
  /// One event with all the scalars, in the file when it returns.
  void write(double seconds, int64_t step, std::span<const Scalar> scalars);
  void finish() { file_->finish(); }
  const std::filesystem::path& path() const { return file_->path(); }

 private:
  void write_record(const std::string& event);
  std::unique_ptr<AppendFile> file_;
};

/// Writes an event after each step and validation. A run from step 0 moves an older run's files aside (run_files.h).
class TensorBoard : public train::Observer {
 public:
  void on_start(const train::RunStart& start) override;
  void on_step(const train::StepReport& step) override;
  void on_validation(const train::ValidationReport& validation) override;
  void on_end(const train::RunEnd& end) override;

 private:
  train::RunStart start_;  // its pointers are cleared
  std::vector<std::string> level_names_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace strata::report
