#include "report/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/ioctl.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "report/example_run.h"
#include "report/run_files.h"

namespace strata::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// What a terminal shows: the lines that stay, and the live one as the last. Throws on lines wider than the terminal.
std::vector<std::string> screen(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  size_t cursor = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n')
      lines.emplace_back(), cursor = 0;
    else if (text[i] == '\r')
      cursor = 0;
    else if (text.compare(i, 3, "\x1b[K") == 0)
      lines.back().resize(cursor), i += 2;
    else {
      std::string& line = lines.back();
      if (cursor >= line.size()) line.resize(cursor + 1);
      line[cursor++] = text[i];
    }
    if (lines.back().starts_with("step ") && lines.back().find("  loss ") != std::string::npos &&
        lines.back().size() >= width)
      throw std::runtime_error("too wide: " + lines.back());
  }
  return lines;
}

/// Progress into memory, with a clock that moves only when told to.
class ProgressTest : public testing::Test {
 protected:
  ~ProgressTest() override {
    progress_.reset();
    if (out_ != nullptr) std::fclose(out_);
    std::free(buffer_);
  }
  void open(ProgressOptions options = {}) {
    out_ = ::open_memstream(&buffer_, &size_);
    options.out = out_;
    options.clock = [this] { return now_; };
    progress_.emplace(options);
  }
  /// What came since the last call.
  std::string taken() {
    std::fflush(out_);
    const std::string text(buffer_ + read_, size_ - read_);
    read_ = size_;
    return text;
  }
  void start(const ExampleRun& run) {
    progress_->on_start(run.start);
    taken();
  }
  void step(train::StepReport report) {
    now_ += report.seconds;
    progress_->on_step(report);
  }

  double now_ = 1000;
  std::optional<Progress> progress_;

 private:
  std::FILE* out_ = nullptr;
  char* buffer_ = nullptr;
  size_t size_ = 0, read_ = 0;
};

TEST_F(ProgressTest, HeaderSaysWhatIsAboutToRun) {
  TemporaryFolder folder;
  ExampleRun run("some/run");
  run.job.model.preset = "tiny", run.job.model.kv_heads = 2;
  step::Program program{};
  program.persistent_bytes = 45'000'000;
  run.start.program = &program;
  open({.peak = {.flops = 2e9, .name = "made up"}});
  progress_->on_start(run.start);
  EXPECT_THAT(
      lines_of(taken()),
      ElementsAre(
          "model    gpt2 \"tiny\", 131.1k parameters: 2 layers, hidden 64, 4 heads (2 for keys and values), ffn 256, "
          "vocabulary "
          "500, sequence 128",
          "batch    " + job::describe(run.start.batch) + "; 1024 tokens a step",
          "steps    100, 102.4k tokens in all, seed 1234", "device   cpu (made up, 2 threads)",
          "memory   123 MB planned, 45.0 MB of it kept from step to step",
          "FLOPs    model 1.00 MFLOP a token = 6 x weights in matrix products + 12 x layers x heads x head_dim x "
          "sequence",
          "           (forward and backward, two a multiply-add, attention's full square, recompute not counted)",
          "         hardware 700 MFLOP a step and rank = the sum over the step program's operations",
          "           (forward, backward and update, two a multiply-add, attention's causal half, recompute counted)",
          "         recompute is 10.0 % of it", "         peak of a rank 2.00 GFLOP/s: made up", "files    some/run"));
}

TEST_F(ProgressTest, HeaderOfAResumedRunWithoutPeakOrProgram) {
  const ExampleRun run("run", 100, 40);
  open();
  progress_->on_start(run.start);
  EXPECT_THAT(taken(), AllOf(HasSubstr("steps    100 (going on after step 40), "),
                             HasSubstr("memory   123 MB planned\n"), HasSubstr("peak of a rank not known")));
}

TEST_F(ProgressTest, PlainLineHasEverything) {
  const ExampleRun run("run", 7);
  open({.peak = {.flops = 2.048e9, .name = "made up"}});
  start(run);
  step(ExampleRun::step(1));
  EXPECT_EQ(taken(),
            "step 1/7  loss 3.2500 (avg 3.2500)  lr 3.00e-04  2.05k tokens/s  1.02 GFLOP/s a rank (50.0 % of peak)  3 "
            "s left  "
            "memory 123 MB planned, 140 MB resident\n");
}

TEST_F(ProgressTest, PlainLinesComeAtTheFirstTheLastAndEveryFewSteps) {
  const ExampleRun run("run", 25);
  open();
  start(run);
  std::vector<int64_t> shown;
  for (int64_t i = 1; i <= 25; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.seconds = 0.001;
    step(report);
    const std::string text = taken();
    EXPECT_THAT(text, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
    if (text.empty()) continue;
    EXPECT_THAT(text, AllOf(StartsWith(fmt::format("step {}/25", i)), EndsWith("\n")));
    shown.push_back(i);
  }
  EXPECT_THAT(shown, ElementsAre(1, 10, 20, 25));
}

TEST_F(ProgressTest, PlainLinesComeAtLeastEveryTenSeconds) {
  const ExampleRun run("run", 1000);
  open();
  start(run);
  std::vector<int64_t> shown;
  for (int64_t i = 1; i <= 9; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.seconds = 4;
    step(report);
    if (!taken().empty()) shown.push_back(i);
  }
  EXPECT_THAT(shown, ElementsAre(1, 4, 7));
}

TEST_F(ProgressTest, LogEveryZeroCountsNoSteps) {
  ExampleRun run("run", 100);
  run.job.run.log_every = 0;
  open();
  start(run);
  for (int64_t i = 1; i <= 20; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.seconds = 0.001;
    step(report);
  }
  EXPECT_EQ(lines_of(taken()).size(), 1u);
}

TEST_F(ProgressTest, TerminalLineIsRewrittenInPlace) {
  const ExampleRun run("run", 3);
  open({.terminal = true, .columns = 200});
  start(run);
  std::string all;
  for (int64_t i = 1; i <= 3; ++i) {
    step(ExampleRun::step(i));
    const std::string text = taken();
    EXPECT_THAT(text, AllOf(StartsWith("\r"), EndsWith("\x1b[K"), Not(HasSubstr("\n"))));
    all += text;
  }
  EXPECT_THAT(screen(all, 200), ElementsAre(StartsWith("step 3/3  loss ")));
}

TEST_F(ProgressTest, TerminalIsNotRedrawnForEveryFastStep) {
  const ExampleRun run("run", 1000);
  open({.terminal = true, .columns = 200});
  start(run);
  int drawn = 0;
  for (int64_t i = 1; i <= 1000; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.seconds = 0.001;
    step(report);
    drawn += !taken().empty();
  }
  EXPECT_GE(drawn, 8);
  EXPECT_LE(drawn, 13);
}

TEST_F(ProgressTest, LongerLinesLeaveNoRest) {
  const ExampleRun run("run", 100);
  open({.terminal = true, .columns = 200});
  start(run);
  train::StepReport report = ExampleRun::step(1);
  report.loss = 12345678;
  step(report);
  report = ExampleRun::step(2);
  step(report);
  EXPECT_THAT(screen(taken(), 200), ElementsAre(EndsWith("140 MB resident")));
}

TEST_F(ProgressTest, NarrowTerminalsLoseTheLeastImportantFirst) {
  const std::pair<int, std::string> expected[] = {
      {250,
       "step 1/7  loss 3.2500 (avg 3.2500)  lr 3.00e-04  2.05k tokens/s  1.02 GFLOP/s a rank  3 s left  memory 123 MB "
       "planned, 140 MB resident"},
      {120, "step 1/7  loss 3.2500 (avg 3.2500)  lr 3.00e-04  2.05k tokens/s  1.02 GFLOP/s a rank  3 s left  140 MB"},
      {80, "step 1/7  loss 3.2500 (avg 3.2500)  2.05k tokens/s  3 s left  140 MB"},
      {69, "step 1/7  loss 3.2500 (avg 3.2500)  2.05k tokens/s  3 s left  140 MB"},
      {68, "step 1/7  loss 3.2500  2.05k tokens/s  3 s left  140 MB"},
      {50, "step 1/7  loss 3.2500  2.05k tok/s  3 s left"},
      {35, "step 1/7  loss 3.2500  3 s left"},
      {25, "step 1/7  loss 3.2500"},
      {5, "step 1/7  loss 3.250"},
  };
  for (const auto& [columns, line] : expected) {
    char* buffer = nullptr;
    size_t size = 0;
    std::FILE* out = ::open_memstream(&buffer, &size);
    {
      Progress progress({.out = out, .terminal = true, .columns = columns, .clock = [] { return 0.0; }});
      const ExampleRun run("run", 7);
      progress.on_start(run.start);
      std::fflush(out);
      const size_t header = size;
      progress.on_step(ExampleRun::step(1));
      std::fflush(out);
      EXPECT_EQ(std::string(buffer + header, size - header), "\r" + line + "\x1b[K") << columns;
    }
    std::fclose(out);
    std::free(buffer);
  }
}

TEST_F(ProgressTest, OtherLinesStandAboveTheLiveOne) {
  const ExampleRun run("run", 100);
  open({.terminal = true, .columns = 200});
  start(run);
  step(ExampleRun::step(1));
  progress_->on_validation({.step = 1, .loss = 3.5, .tokens = 20480, .seconds = 2.5});
  progress_->on_saved(1, "run/checkpoints/step-1");
  EXPECT_THAT(screen(taken(), 200),
              ElementsAre("step 1: validation loss 3.5000 over 20.48k tokens in 2.5 s",
                          "step 1: saved run/checkpoints/step-1", StartsWith("step 1/100  loss ")));
}

TEST_F(ProgressTest, SkippedStepsAreShownOnceARowAndCounted) {
  const ExampleRun run("run", 100);
  open({.terminal = true, .columns = 250});
  start(run);
  step(ExampleRun::step(1));
  for (int64_t i = 2; i <= 4; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.skipped = true, report.loss = std::nan(""), report.grad_norm = std::nan("");
    step(report);
  }
  const std::vector<std::string> lines = screen(taken(), 250);
  EXPECT_THAT(lines, ElementsAre("step 2: skipped, nothing was updated: gradients are not finite (loss nan, norm nan)",
                                 AllOf(StartsWith("step 4/100  loss nan (avg 3.2500)"), EndsWith("3 skipped"))));
}

TEST_F(ProgressTest, SmoothedLossIsAMeanFromTheFirstStepOn) {
  const ExampleRun run("run", 3);
  open();
  start(run);
  const double losses[] = {4, 2, std::numeric_limits<double>::infinity()};
  std::string text;
  for (int64_t i = 1; i <= 3; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.loss = losses[i - 1];
    step(report);
    text = taken();
    if (i == 1) {
      EXPECT_THAT(text, HasSubstr("loss 4.0000 (avg 4.0000)"));
    }
  }
  // (0.95 x 4 + 2) / 1.95; the infinite one is left out.
  EXPECT_THAT(text, HasSubstr("loss inf (avg 2.9744)"));
}

TEST_F(ProgressTest, TimeLeftDisregardsAFirstStepThatWasSlow) {
  const ExampleRun run("run", 101);
  open();
  start(run);
  train::StepReport report = ExampleRun::step(1);
  report.seconds = 20;
  step(report);
  EXPECT_THAT(taken(), HasSubstr("  33 min 20 s left  "));
  for (int64_t i = 2; i <= 40; ++i) step(ExampleRun::step(i));
  EXPECT_THAT(lines_of(taken()).back(), HasSubstr("  30 s left  "));
}

TEST_F(ProgressTest, TimeLeftFollowsAChangeOfSpeed) {
  const ExampleRun run("run", 100);
  open();
  start(run);
  for (int64_t i = 1; i <= 50; ++i) step(ExampleRun::step(i));
  for (int64_t i = 51; i <= 80; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.seconds = 2;
    step(report);
  }
  EXPECT_THAT(lines_of(taken()).back(), HasSubstr("  40 s left  "));
}

TEST_F(ProgressTest, TimeLeftCountsValidationAndSaves) {
  const ExampleRun run("run", 100);
  open();
  start(run);
  for (int64_t i = 1; i <= 20; ++i) {
    step(ExampleRun::step(i));
    if (i == 10) now_ += 10;  // half as long again as the steps
  }
  EXPECT_THAT(lines_of(taken()).back(), HasSubstr("  1 min 20 s left  "));
}

TEST_F(ProgressTest, TimeLeftOfAResumedRunIsOfTheStepsToCome) {
  const ExampleRun run("run", 100, 90);
  open();
  start(run);
  step(ExampleRun::step(91));
  EXPECT_THAT(taken(), AllOf(StartsWith("step 91/100"), HasSubstr("  4 s left  ")));
}

TEST_F(ProgressTest, TimeLeftIsNeverNegative) {
  const ExampleRun run("run", 5);
  open();
  start(run);
  now_ -= 100;  // a clock that lags behind what steps say
  step(ExampleRun::step(5));
  step(ExampleRun::step(10));
  for (const std::string& line : lines_of(taken())) EXPECT_THAT(line, HasSubstr("  0 s left  "));
}

TEST_F(ProgressTest, AStepWithoutDurationOrMemoryIsStillALine) {
  const ExampleRun run("run", 5);
  open();
  start(run);
  train::StepReport report = ExampleRun::step(1);
  report.seconds = 0, report.resident_bytes = -1;
  step(report);
  EXPECT_EQ(taken(),
            "step 1/5  loss 3.2500 (avg 3.2500)  lr 3.00e-04  ? tokens/s  ?/s a rank  0 s left  memory 123 MB planned, "
            "123 MB allocated\n");
}

TEST_F(ProgressTest, SummaryHasTotalsMedianAndFiles) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path(), 3);
  write_file(metrics_file(folder.path()), "x");
  open({.peak = {.flops = 2.048e9, .name = "made up"}});
  start(run);
  const double seconds[] = {100, 0.5, 0.25};
  for (int64_t i = 1; i <= 3; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.seconds = seconds[i - 1];
    report.skipped = i == 2;
    step(report);
    progress_->on_validation({.step = i, .loss = i == 2 ? 3.0 : 3.5, .tokens = 10, .seconds = 1});
  }
  taken();
  progress_->on_end({.step = 3, .seconds = 103, .saved = "run/model"});
  const std::string path = folder.path().string();
  EXPECT_THAT(
      lines_of(taken()),
      ElementsAre("done: 3 steps, 3.07k tokens in 1 min 43 s",
                  "speed    median 2.05k tokens/s, 1.02 GFLOP/s of model FLOPs a rank, 50.0 % of peak",
                  "loss     last 3.2500, avg 3.2500; validation 3.5000 after step 3, best 3.0000 after step 2",
                  "skipped  1 step: gradients were not finite",
                  "memory   123 MB planned, 123 MB allocated (as planned), 140 MB resident at the process's peak",
                  "model    run/model", "files    " + path + ", " + path + "/metrics.jsonl"));
}

TEST_F(ProgressTest, SummaryOfAnInterruptedRunShowsItsLastStep) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path(), 100);
  open();
  start(run);
  for (int64_t i = 1; i <= 13; ++i) {
    train::StepReport report = ExampleRun::step(i);
    report.allocated_bytes += 64;
    step(report);
  }
  taken();
  progress_->on_end({.step = 13, .seconds = 6.5, .interrupted = true, .saved = {}});
  EXPECT_THAT(
      taken(),
      AllOf(StartsWith("step 13/100"), HasSubstr("\nstopped on request after step 13 of 100: 13 steps, "),
            HasSubstr("(64 bytes more than planned)"), Not(HasSubstr("validation")), Not(HasSubstr("model    "))));
}

TEST_F(ProgressTest, SummaryOfARunWithoutStepsIsShort) {
  const ExampleRun run("run", 0);
  open();
  start(run);
  progress_->on_end({});
  EXPECT_THAT(lines_of(taken()), ElementsAre("done: 0 steps, 0 tokens in 0 ms", "files    run"));
}

TEST_F(ProgressTest, TerminalSummaryStandsBelowTheLastLine) {
  const ExampleRun run("run", 1);
  open({.terminal = true, .columns = 200});
  start(run);
  step(ExampleRun::step(1));
  progress_->on_end({.step = 1, .seconds = 1, .saved = {}});
  const std::vector<std::string> lines = screen(taken(), 200);
  EXPECT_THAT(lines.at(0), StartsWith("step 1/1"));
  EXPECT_THAT(lines.at(1), StartsWith("done: "));
  EXPECT_THAT(lines.back(), IsEmpty());
}

TEST_F(ProgressTest, ARunThatBreaksOffEndsItsLine) {
  const ExampleRun run("run", 100);
  open({.terminal = true, .columns = 200});
  start(run);
  step(ExampleRun::step(1));
  train::StepReport report = ExampleRun::step(2);
  report.seconds = 0.001;
  step(report);
  progress_.reset();
  EXPECT_THAT(screen(taken(), 200), ElementsAre(StartsWith("step 2/100"), ""));
}

TEST_F(ProgressTest, RunsFromAFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress({.out = file});
    const ExampleRun run("run", 3);
    progress.on_start(run.start);
    for (int64_t i = 1; i <= 3; ++i) progress.on_step(ExampleRun::step(i));
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_THAT(text, AllOf(HasSubstr("step 3/3"), Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
}

/// A pseudo-terminal 60 columns wide; what `write` puts into it.
std::string on_terminal(const char* term, const std::function<void(std::FILE*)>& write) {
  int master = -1, slave = -1;
  winsize size{};
  size.ws_col = 60, size.ws_row = 24;
  if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) return "";
  const char* before = std::getenv("TERM");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TERM", term, 1);
  std::FILE* out = ::fdopen(slave, "w");
  write(out);
  if (before == nullptr)
    ::unsetenv("TERM");
  else
    ::setenv("TERM", kept.c_str(), 1);
  std::string text(8192, '\0');
  const ssize_t got = ::read(master, text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  std::fclose(out);
  ::close(master);
  return text;
}

TEST_F(ProgressTest, ARealTerminalIsRecognisedAndItsWidthRead) {
  const auto step = [](std::FILE* out) {
    Progress progress({.out = out});
    progress.on_step(ExampleRun::step(1));
    std::fflush(out);
  };
  const std::string text = on_terminal("xterm", step);
  if (text.empty()) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_THAT(text, AllOf(StartsWith("\r"), HasSubstr("\x1b[K")));
  EXPECT_LE(text.find("\x1b[K"), 60u);
  EXPECT_THAT(on_terminal("dumb", step), AllOf(StartsWith("step 1"), Not(HasSubstr("\x1b"))));
}

TEST_F(ProgressTest, OutputThatCannotBeWrittenIsLostWithoutHarm) {
  std::FILE* full = std::fopen("/dev/full", "w");
  if (full == nullptr) GTEST_SKIP() << "no /dev/full here";
  const ExampleRun run("run", 1);
  Progress progress({.out = full});
  EXPECT_NO_THROW({
    progress.on_start(run.start);
    progress.on_step(ExampleRun::step(1));
    progress.on_end({});
  });
  std::fclose(full);
}

}  // namespace
}  // namespace strata::report
