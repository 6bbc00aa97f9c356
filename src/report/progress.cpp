#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "job/batch.h"
#include "report/ledger.h"
#include "report/run_files.h"
#include "report/trace.h"

namespace strata::report {

namespace {

constexpr double smoothing = 0.95;
constexpr size_t recent_steps = 20;
constexpr double redraw_seconds = 0.1, plain_seconds = 10;
constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

bool is_terminal(std::FILE* out) {
  const int descriptor = ::fileno(out);
  const char* term = std::getenv("TERM");
  return descriptor >= 0 && ::isatty(descriptor) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

std::string loss_text(double loss) {
  return std::abs(loss) < 1e4 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

std::string rate_text(double a_second) {
  if (!std::isfinite(a_second)) return "?";
  return a_second < 999.5 ? fmt::format("{:.3g}", a_second) : human_count(a_second);
}

/// Tenths of a second would only flicker.
std::string left_text(double seconds) {
  return seconds < 59.5 ? fmt::format("{:.0f} s", seconds) : human_duration(seconds);
}

std::string count_text(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// A formula, and below it, indented, what its brackets say.
std::string on_two_lines(std::string_view formula) {
  const size_t bracket = formula.find(" (");
  return fmt::format("{}\n           {}", formula.substr(0, bracket), formula.substr(bracket + 1));
}

/// A part of the progress line, from its longest form to its shortest.
struct Field {
  std::vector<std::string> forms;
  size_t form = 0;
};

std::string joined(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) {
    const std::string& text = field.forms[field.form];
    if (!text.empty()) line += (line.empty() ? "" : "  ") + text;
  }
  return line;
}

}  // namespace

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  terminal_ = options_.terminal.value_or(is_terminal(options_.out));
  if (!options_.clock)
    options_.clock = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
}

Progress::~Progress() {
  if (line_open_) show_live();
  if (live_) std::fputc('\n', options_.out), std::fflush(options_.out);
}

void Progress::on_start(const train::RunStart& start) {
  STRATA_CHECK(start.job != nullptr);
  const job::Job& job = *start.job;
  const model::Config& model = job.model;
  const int64_t step_tokens = start.batch.global * job.batch.sequence;
  steps_ = job.run.steps, log_every_ = job.run.log_every;

  print(
      fmt::format("model    {}{}, {} parameters: {} layers, hidden {}, {} heads{}, ffn {}, vocabulary {}, sequence {}",
                  model::name_of(model.family), model.preset.empty() ? "" : " \"" + model.preset + "\"",
                  human_count(static_cast<double>(start.parameters)), model.layers, model.hidden, model.heads,
                  model.kv_heads == model.heads ? "" : fmt::format(" ({} for keys and values)", model.kv_heads),
                  model.ffn, model.vocab, job.batch.sequence));
  print(fmt::format("batch    {}; {} tokens a step", job::describe(start.batch), step_tokens));
  print(fmt::format("steps    {}{}, {} tokens in all, seed {}", steps_,
                    start.first_step > 0 ? fmt::format(" (going on after step {})", start.first_step) : "",
                    human_count(static_cast<double>(steps_ * step_tokens)), job.run.seed));
  print(fmt::format("device   {}", start.device));
  print(fmt::format("memory   {} planned{}", human_bytes(start.planned_bytes),
                    start.program == nullptr ? ""
                                             : fmt::format(", {} of it kept from step to step",
                                                           human_bytes(start.program->persistent_bytes))));
  print("FLOPs    model " + flops_text(start.model_flops_per_token) + " " + on_two_lines(model_flops_formula));
  print("         hardware " + flops_text(start.program_flops) + " " + on_two_lines(hardware_flops_formula));
  if (start.program_recompute_flops > 0)
    print(
        fmt::format("         recompute is {:.1f} % of it", 100 * start.program_recompute_flops / start.program_flops));
  print("         peak of a rank " + (options_.peak.known()
                                          ? fmt::format("{}/s: {}", flops_text(options_.peak.flops), options_.peak.name)
                                          : "not known, so no share of it is shown"));
  print(fmt::format("files    {}", start.folder.string()));

  level_names_ = start.program == nullptr ? std::vector<std::string>() : start.program->level_names;
  start_ = start;
  start_.job = nullptr, start_.program = nullptr;
  started_ = last_shown_ = options_.clock();
}

void Progress::on_step(const train::StepReport& step) {
  const double now = options_.clock();
  const bool first_of_a_row = step.skipped && !last_.skipped;
  last_ = step;
  ++done_;
  busy_ += step.seconds;
  if (done_ == 2) recent_.clear();  // the first step touches memory for the first time and is no measure of the others
  recent_.push_back(step);
  if (recent_.size() > recent_steps) recent_.pop_front();
  if (step.seconds > 0) tokens_per_second_.push_back(rates(start_, step).tokens);
  if (step.skipped) {
    ++skipped_;
  } else if (std::isfinite(step.loss)) {
    loss_sum_ = smoothing * loss_sum_ + (1 - smoothing) * step.loss;
    loss_weight_ = smoothing * loss_weight_ + (1 - smoothing);
  }
  if (first_of_a_row)
    print(fmt::format("step {}: skipped, nothing was updated: gradients are not finite (loss {}, norm {})", step.step,
                      loss_text(step.loss), loss_text(step.grad_norm)));

  line_open_ = true;
  const bool edge = done_ == 1 || step.step == steps_;
  const bool due = terminal_ ? now - last_shown_ >= redraw_seconds
                             : (log_every_ > 0 && step.step % log_every_ == 0) || now - last_shown_ >= plain_seconds;
  if (!edge && !due) return;
  show_live();
  last_shown_ = now;
}

void Progress::on_timeline(const train::TimelineReport& timeline) {
  const TraceSummary summary = summarise(timeline);
  const std::string share =
      timeline.ranks.size() > 1
          ? fmt::format("computing {:.0f} % (rank {}) to {:.0f} % (rank {}) of {}", 100 * summary.least,
                        summary.least_rank, 100 * summary.most, summary.most_rank, human_duration(summary.seconds))
          : fmt::format("computing {:.0f} % of {}", 100 * summary.least, human_duration(summary.seconds));
  print(fmt::format("step {}: traced on {}, {}: {}", timeline.step,
                    count_text(static_cast<int64_t>(timeline.ranks.size()), "rank"), share,
                    trace_file(start_.folder, timeline.step).string()));
}

void Progress::on_validation(const train::ValidationReport& validation) {
  validation_ = validation;
  const bool best = !best_validation_ || validation.loss < best_validation_->loss;
  if (best && std::isfinite(validation.loss)) best_validation_ = validation;
  print(fmt::format("step {}: validation loss {} over {} tokens in {}", validation.step, loss_text(validation.loss),
                    human_count(static_cast<double>(validation.tokens)), human_duration(validation.seconds)));
}

void Progress::on_saved(int64_t step, const std::filesystem::path& folder) {
  print(fmt::format("step {}: saved {}", step, folder.string()));
}

void Progress::on_end(const train::RunEnd& end) {
  if (line_open_) show_live();
  if (live_) std::fputc('\n', options_.out), live_ = false;

  int64_t tokens = 0;
  if (done_ > 0) tokens = last_.total_tokens;
  const bool whole = start_.first_step == 0;
  print(fmt::format("{}: {}{}, {} tokens in {}",
                    end.interrupted ? fmt::format("stopped on request after step {} of {}", end.step, steps_) : "done",
                    count_text(done_, "step"), whole ? "" : fmt::format(" (to step {})", end.step),
                    human_count(static_cast<double>(tokens)) + (whole ? "" : " since step 1"),
                    human_duration(end.seconds)));
  if (!tokens_per_second_.empty()) {
    const auto middle = tokens_per_second_.begin() + static_cast<std::ptrdiff_t>(tokens_per_second_.size() / 2);
    std::nth_element(tokens_per_second_.begin(), middle, tokens_per_second_.end());
    const double model_flops =
        start_.model_flops_per_token * *middle / static_cast<double>(std::max<int64_t>(start_.batch.ranks, 1));
    print(fmt::format("speed    median {}",
                      speed_text({.tokens = *middle, .model_flops = model_flops, .hardware_flops = 0})));
  }
  if (done_ > 0) {
    std::string losses = fmt::format("last {}, avg {}", loss_text(last_.loss), loss_text(mean_loss()));
    if (validation_)
      losses += fmt::format("; validation {} after step {}", loss_text(validation_->loss), validation_->step);
    if (best_validation_ && best_validation_->step != validation_->step)
      losses += fmt::format(", best {} after step {}", loss_text(best_validation_->loss), best_validation_->step);
    print("loss     " + losses);
    if (skipped_ > 0) print(fmt::format("skipped  {}: gradients were not finite", count_text(skipped_, "step")));
    const int64_t beyond = last_.allocated_bytes - start_.planned_bytes;
    print(fmt::format("memory   {} planned, {} allocated ({}){}", human_bytes(start_.planned_bytes),
                      human_bytes(last_.allocated_bytes),
                      beyond == 0
                          ? "as planned"
                          : fmt::format("{} bytes {} than planned", std::abs(beyond), beyond > 0 ? "more" : "fewer"),
                      last_.resident_bytes < 0
                          ? ""
                          : fmt::format(", {} resident at the process's peak", human_bytes(last_.resident_bytes))));
  }
  const std::vector<LedgerRow> rows = ledger(end, level_names_);
  if (!rows.empty()) print("traffic  sent by all ranks; a step: the mean, validations counted in");
  for (const std::string& line : ledger_lines(rows, done_)) print("         " + line);
  if (!end.saved.empty()) print(fmt::format("model    {}", end.saved.string()));
  std::string files = start_.folder.string();
  for (const auto& path :
       {metrics_file(start_.folder), tensorboard_folder(start_.folder), log_file(start_.folder, 0)}) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) files += ", " + path.string();
  }
  print("files    " + files);
}

void Progress::print(const std::string& line) {
  const bool was_live = live_;
  if (was_live) std::fputs("\r\x1b[K", options_.out);
  std::fputs((line + '\n').c_str(), options_.out);
  live_ = false;
  if (was_live) show_live();
  std::fflush(options_.out);
}

void Progress::show_live() {
  line_open_ = false;
  if (terminal_) {
    std::fputs(("\r" + progress_line(static_cast<size_t>(std::max(columns() - 1, 20))) + "\x1b[K").c_str(),
               options_.out);
    live_ = true;
  } else {
    std::fputs((progress_line(std::string::npos) + '\n').c_str(), options_.out);
  }
  std::fflush(options_.out);
}

std::string Progress::progress_line(size_t width) const {
  enum : size_t { step, loss, rate, tokens, flops, left, memory, skips };
  const Rates speed = recent();
  std::vector<Field> fields(8);
  fields[step].forms = {fmt::format("step {}/{}", last_.step, steps_)};
  const std::string last_loss = "loss " + loss_text(last_.loss);
  fields[loss].forms = {fmt::format("{} (avg {})", last_loss, loss_text(mean_loss())), last_loss};
  fields[rate].forms = {fmt::format("lr {:.2e}", last_.learning_rate), ""};
  fields[tokens].forms = {rate_text(speed.tokens) + " tokens/s", rate_text(speed.tokens) + " tok/s", ""};
  std::string flops_rate = flops_text(speed.model_flops) + "/s" + (start_.batch.ranks > 1 ? " a rank" : "");
  if (options_.peak.known())
    flops_rate += fmt::format(" ({:.1f} % of peak)", 100 * speed.model_flops / options_.peak.flops);
  fields[flops].forms = {flops_rate, ""};
  fields[left].forms = {left_text(seconds_left()) + " left", ""};
  const bool resident = last_.resident_bytes >= 0;
  const std::string measured = human_bytes(resident ? last_.resident_bytes : last_.allocated_bytes);
  fields[memory].forms = {fmt::format("memory {} planned, {} {}", human_bytes(start_.planned_bytes), measured,
                                      resident ? "resident" : "allocated"),
                          measured, ""};
  fields[skips].forms = {skipped_ > 0 ? fmt::format("{} skipped", skipped_) : "", ""};

  static constexpr size_t shorten[] = {memory, flops, rate, loss, tokens, memory, skips, tokens, left};
  std::string line = joined(fields);
  for (const size_t field : shorten) {
    if (line.size() <= width) break;
    ++fields[field].form;
    line = joined(fields);
  }
  if (line.size() > width) line.resize(width);
  return line;
}

std::string Progress::speed_text(const Rates& speed) const {
  std::string text = fmt::format("{} tokens/s, {}/s of model FLOPs{}", rate_text(speed.tokens),
                                 flops_text(speed.model_flops), start_.batch.ranks > 1 ? " a rank" : "");
  if (options_.peak.known()) text += fmt::format(", {:.1f} % of peak", 100 * speed.model_flops / options_.peak.flops);
  return text;
}

Rates Progress::recent() const {
  train::StepReport sum;
  for (const train::StepReport& step : recent_) sum.tokens += step.tokens, sum.seconds += step.seconds;
  Rates mean = rates(start_, sum);
  mean.hardware_flops *= static_cast<double>(recent_.size());
  return mean;
}

double Progress::seconds_left() const {
  if (recent_.empty()) return not_known;
  double seconds = 0;
  for (const train::StepReport& step : recent_) seconds += step.seconds;
  const double pauses = std::max(0.0, options_.clock() - started_ - busy_) / static_cast<double>(done_);
  const double a_step = seconds / static_cast<double>(recent_.size()) + pauses;
  return static_cast<double>(std::max<int64_t>(steps_ - last_.step, 0)) * a_step;
}

int Progress::columns() const {
  if (options_.columns > 0) return options_.columns;
  winsize size{};
  const int descriptor = ::fileno(options_.out);
  if (descriptor >= 0 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* told = std::getenv("COLUMNS");
  const int columns = told == nullptr ? 0 : std::atoi(told);
  return columns > 0 ? columns : 80;
}

}  // namespace strata::report
