#pragma once
// A run's folder:
//
//   job.toml        the merged job, every key with its value
//   metrics.jsonl   metrics.h
//   tensorboard/    tensorboard.h
//   trace-step-N.json  trace.h, of the steps in run.trace
//   log/rank-N.log  what rank N had to say; runs follow each other
//
// A new run in a folder that holds an older one moves the older one's job.toml (if it differs), metrics.jsonl, tensorboard/
// and traces of the same steps aside: NAME.1, then NAME.2 and so on, the highest number the youngest. A resumed run goes on in them.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "job/job.h"
#include "train/observer.h"

namespace spdlog {
class logger;
}

namespace strata::report {

std::filesystem::path job_file(const std::filesystem::path& folder);
std::filesystem::path metrics_file(const std::filesystem::path& folder);
std::filesystem::path tensorboard_folder(const std::filesystem::path& folder);
std::filesystem::path trace_file(const std::filesystem::path& folder, int64_t step);
std::filesystem::path log_file(const std::filesystem::path& folder, int64_t rank);

/// Renames a file or folder to the first free NAME.1, NAME.2, ... and returns that; "" if there was nothing, or only an
/// empty file or folder, or something that is neither. Throws a run error naming both.
std::filesystem::path move_aside(const std::filesystem::path& path);

/// Makes the folder (and those above it), takes it for this process until destroyed, and writes job.toml. Rank 0 only.
/// Throws an input error when something else has the name or another running process has the folder, a run error when
/// the system refuses. File systems without locks are used without one.
class RunFolder {
 public:
  RunFolder(std::filesystem::path folder, const job::Job& job);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Opens a rank's log for appending (run error naming it if that fails) and makes it the process's default logger, so
/// that spdlog::info and the like write to it. Every line is flushed. A full disk costs lines, never the run.
std::shared_ptr<spdlog::logger> open_log(const std::filesystem::path& folder, int64_t rank);

/// Writes the run's landmarks (start, skipped steps, validation, saves, end) to a log. Steps are in metrics.jsonl.
class LogListener : public train::Observer {
 public:
  explicit LogListener(std::shared_ptr<spdlog::logger> log);
  ~LogListener() override;
  void on_start(const train::RunStart& start) override;
  void on_step(const train::StepReport& step) override;
  void on_timeline(const train::TimelineReport& timeline) override;
  void on_validation(const train::ValidationReport& validation) override;
  void on_saved(int64_t step, const std::filesystem::path& folder) override;
  void on_end(const train::RunEnd& end) override;
  /// What the rank ends with instead.
  void failed(const std::exception& error);

 private:
  std::shared_ptr<spdlog::logger> log_;
  std::vector<std::string> level_names_;
};

}  // namespace strata::report
