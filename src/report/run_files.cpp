#include "report/run_files.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "files/atomic_file.h"
#include "job/batch.h"
#include "report/ledger.h"
#include "report/trace.h"

namespace strata::report {

namespace fs = std::filesystem;

fs::path job_file(const fs::path& folder) { return folder / "job.toml"; }
fs::path metrics_file(const fs::path& folder) { return folder / "metrics.jsonl"; }
fs::path tensorboard_folder(const fs::path& folder) { return folder / "tensorboard"; }
fs::path trace_file(const fs::path& folder, int64_t step) { return folder / fmt::format("trace-step-{}.json", step); }

fs::path log_file(const fs::path& folder, int64_t rank) { return folder / "log" / fmt::format("rank-{}.log", rank); }

namespace {

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (fs::is_directory(folder)) return;
  if (fs::exists(folder)) throw input_error("{}: is in the way: a folder of this name is needed", folder.string());
  throw run_error("{}: cannot create this folder: {}", folder.string(), error.message());
}

}  // namespace

fs::path move_aside(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) && !fs::is_directory(path, error)) return {};
  if (fs::is_empty(path, error)) return {};
  fs::path aside;
  for (int number = 1;; ++number) {
    aside = fmt::format("{}.{}", path.string(), number);
    if (fs::symlink_status(aside, error).type() == fs::file_type::not_found) break;
    if (fs::symlink_status(aside, error).type() == fs::file_type::none)
      throw run_error("{}: cannot look it up: {}", aside.string(), error.message());
  }
  fs::rename(path, aside, error);
  if (error) throw run_error("{}: cannot rename to {}: {}", path.string(), aside.string(), error.message());
  return aside;
}

RunFolder::RunFolder(fs::path folder, const job::Job& job) : path_(std::move(folder)) {
  make_folder(path_);
  // The lock is on the folder itself and goes with the process, so that a killed run leaves none behind.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) throw run_error("{}: cannot open this folder: {}", path_.string(), std::strerror(errno));
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw input_error("{}: another run is writing to this folder; stop it, or choose another run.folder",
                        path_.string());
    const std::string text = job::show(job);
    const fs::path file = job_file(path_);
    if (fs::is_regular_file(file)) {
      if (files::read_text(file) == text) return;
      move_aside(file);
    }
    files::write_text(file, text);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

RunFolder::~RunFolder() { ::close(descriptor_); }

std::shared_ptr<spdlog::logger> open_log(const fs::path& folder, int64_t rank) {
  const fs::path file = log_file(folder, rank);
  make_folder(file.parent_path());
  std::shared_ptr<spdlog::logger> log;
  try {
    log = std::make_shared<spdlog::logger>(fmt::format("rank {}", rank),
                                           std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string()));
  } catch (const spdlog::spdlog_ex& error) {
    throw run_error("{}: cannot open: {}", file.string(), error.what());
  }
  log->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %l: %v");
  log->flush_on(spdlog::level::trace);
  log->set_error_handler([](const std::string&) {});
  spdlog::set_default_logger(log);
  return log;
}

LogListener::LogListener(std::shared_ptr<spdlog::logger> log) : log_(std::move(log)) {}
LogListener::~LogListener() = default;

void LogListener::on_start(const train::RunStart& start) {
  log_->info("run starts after step {} of {}: job {:016x}, {} parameters, {}; {}, {} bytes planned", start.first_step,
             start.job->run.steps, job::digest(*start.job), start.parameters, job::describe(start.batch), start.device,
             start.planned_bytes);
  level_names_ = start.program == nullptr ? std::vector<std::string>() : start.program->level_names;
}

void LogListener::on_step(const train::StepReport& step) {
  if (step.skipped)
    log_->warn("step {}: skipped, gradients are not finite (norm {}, loss {})", step.step, step.grad_norm, step.loss);
}

void LogListener::on_timeline(const train::TimelineReport& timeline) {
  const TraceSummary summary = summarise(timeline);
  log_->info("step {}: traced on {} ranks, {:.6f} s, computing {:.4f} (rank {}) to {:.4f} (rank {}) of it",
             timeline.step, timeline.ranks.size(), summary.seconds, summary.least, summary.least_rank, summary.most,
             summary.most_rank);
}

void LogListener::on_validation(const train::ValidationReport& validation) {
  log_->info("step {}: validation loss {} over {} tokens, {:.3f} s", validation.step, validation.loss,
             validation.tokens, validation.seconds);
}

void LogListener::on_saved(int64_t step, const fs::path& folder) {
  if (folder.empty())  // rank 0 writes for all
    log_->info("step {}: saved", step);
  else
    log_->info("step {}: saved {}", step, folder.string());
}

void LogListener::failed(const std::exception& error) { log_->error("{}", error.what()); }

void LogListener::on_end(const train::RunEnd& end) {
  const std::vector<LedgerRow> rows = ledger(end, level_names_);
  for (const std::string& line : ledger_lines(rows, end.step)) log_->info("traffic: {}", line);
  for (const std::string& line : ledger_differences(rows)) log_->error("traffic is not as counted: {}", line);
  log_->info("run {} at step {} after {:.3f} s", end.interrupted ? "was stopped" : "ends", end.step, end.seconds);
}

}  // namespace strata::report
