#pragma once
// What a person sees of a run: a header, progress, a summary.
//
// On a terminal, progress is one line, rewritten in place and made to fit the terminal's width. Elsewhere it is plain
// lines with no control characters: after the first and the last step, every run.log_every steps, and otherwise when
// the last line is 10 s old. Validation losses, saves and the first of several skipped steps in a row get a line of
// their own on both.
//
// "loss" is the last step's; "avg" is smoothed: an exponential mean over steps (decay 0.95, corrected for its start)
// that leaves out skipped steps and losses that are not finite. Speeds are means over the last 20 steps. Time left
// counts validation and saves at the share that they have had so far.

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/flops.h"
#include "train/observer.h"

namespace strata::report {

struct ProgressOptions {
  std::FILE* out = stdout;         ///< not owned; flushed after each line
  std::optional<bool> terminal{};  ///< empty: whether `out` is a terminal that is not TERM=dumb
  int columns = 0;                 ///< of the terminal; 0: as it says, else $COLUMNS, else 80
  Peak peak{};
  std::function<double()> clock{};  ///< seconds on a clock that only goes forward; empty: the system's
};

/// Output that cannot be written (a closed terminal, a full disk) is lost and never ends a run: metrics.jsonl is the
/// record.
class Progress : public train::Observer {
 public:
  explicit Progress(ProgressOptions options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends the live line if the run broke off.
  ~Progress() override;
  void on_start(const train::RunStart& start) override;
  void on_step(const train::StepReport& step) override;
  void on_timeline(const train::TimelineReport& timeline) override;
  void on_validation(const train::ValidationReport& validation) override;
  void on_saved(int64_t step, const std::filesystem::path& folder) override;
  void on_end(const train::RunEnd& end) override;

 private:
  void print(const std::string& line);  // a line that stays, above the live one
  void show_live();
  std::string progress_line(size_t width) const;
  double seconds_left() const;
  Rates recent() const;
  std::string speed_text(const Rates& speed) const;
  int columns() const;

  ProgressOptions options_;
  bool terminal_ = false;
  train::RunStart start_;  // its pointers are cleared
  std::vector<std::string> level_names_;
  int64_t steps_ = 0, log_every_ = 0;

  train::StepReport last_;
  int64_t done_ = 0;               // steps seen
  double started_ = 0, busy_ = 0;  // clock at the start; seconds inside steps
  double last_shown_ = 0;
  bool live_ = false;       // the cursor stands behind the live line
  bool line_open_ = false;  // there is a step that no line has shown yet
  double loss_sum_ = 0, loss_weight_ = 0;
  /// Of the steps that were updates; the last loss where none was.
  double mean_loss() const { return loss_weight_ > 0 ? loss_sum_ / loss_weight_ : last_.loss; }
  std::deque<train::StepReport> recent_;
  std::vector<double> tokens_per_second_;
  int64_t skipped_ = 0;
  std::optional<train::ValidationReport> validation_, best_validation_;
};

}  // namespace strata::report
