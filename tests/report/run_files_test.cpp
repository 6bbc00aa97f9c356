#include "report/run_files.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cmath>

#include "report/example_run.h"

namespace strata::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

/// The process's default logger as it was before the test.
class Log : public testing::Test {
 protected:
  ~Log() override { spdlog::set_default_logger(before_); }

 private:
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST(RunFolder, HoldsTheJobAsItReads) {
  TemporaryFolder folder;
  const ExampleRun run("unused");
  const fs::path path = folder.path() / "a" / "run";
  const RunFolder made(path, run.job);
  EXPECT_EQ(made.path(), path);
  EXPECT_EQ(read_file(job_file(path)), job::show(run.job));
  EXPECT_THAT(names_in(path), ElementsAre("job.toml"));
}

TEST(RunFolder, KeepsAnOlderJobThatDiffers) {
  TemporaryFolder folder;
  const ExampleRun run("unused", 100), longer("unused", 200);
  { const RunFolder made(folder.path(), run.job); }
  { const RunFolder same(folder.path(), run.job); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("job.toml"));
  { const RunFolder other(folder.path(), longer.job); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("job.toml", "job.toml.1"));
  EXPECT_EQ(read_file(job_file(folder.path())), job::show(longer.job));
  EXPECT_EQ(read_file(job_file(folder.path()).string() + ".1"), job::show(run.job));
}

TEST(RunFolder, IsForOneRunAtATime) {
  TemporaryFolder folder;
  const ExampleRun run("unused", 100), other("unused", 200);
  {
    const RunFolder made(folder.path(), run.job);
    EXPECT_THAT(message_of(Fault::input, [&] { RunFolder(folder.path(), other.job); }),
                AllOf(HasSubstr(folder.path().string()), HasSubstr("another run"), HasSubstr("run.folder")));
    EXPECT_EQ(read_file(job_file(folder.path())), job::show(run.job));
  }
  RunFolder(folder.path(), other.job);
}

TEST(RunFolder, AFileInTheWayIsAnInputError) {
  TemporaryFolder folder;
  const ExampleRun run("unused");
  write_file(folder.path() / "run", "x");
  EXPECT_THAT(message_of(Fault::input, [&] { RunFolder(folder.path() / "run", run.job); }),
              HasSubstr((folder.path() / "run").string()));
}

TEST(RunFolder, AFolderThatCannotBeMadeIsARunErrorWithTheCause) {
  const ExampleRun run("unused");
  EXPECT_THAT(message_of(Fault::run, [&] { RunFolder("/proc/run", run.job); }), HasSubstr("/proc/run: cannot create"));
  TemporaryFolder folder;
  write_file(folder.path() / "file", "x");
  EXPECT_THAT(message_of(Fault::run, [&] { RunFolder(folder.path() / "file" / "run", run.job); }),
              AllOf(HasSubstr("file/run"), HasSubstr("Not a directory")));
}

TEST(RunFolder, NoSpaceForTheJobIsARunErrorAndLeavesNothing) {
  TemporaryFolder folder;
  const ExampleRun run("unused");
  {
    FileSizeLimit limit(10);
    EXPECT_THAT(message_of(Fault::run, [&] { RunFolder(folder.path(), run.job); }), HasSubstr("job.toml"));
  }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(MoveAside, NumbersUpwardsAndLeavesEmptyThings) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "x";
  EXPECT_EQ(move_aside(path), fs::path());
  write_file(path, "");
  EXPECT_EQ(move_aside(path), fs::path());
  write_file(path, "1");
  EXPECT_EQ(move_aside(path), folder.path() / "x.1");
  fs::create_directory(path);
  EXPECT_EQ(move_aside(path), fs::path());
  write_file(path / "inside", "2");
  fs::create_symlink("nowhere", folder.path() / "x.2");
  EXPECT_EQ(move_aside(path), folder.path() / "x.3");
  EXPECT_EQ(read_file(folder.path() / "x.1"), "1");
  EXPECT_EQ(read_file(folder.path() / "x.3" / "inside"), "2");
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Log, IsOneFileARankAndAppendsAtOnce) {
  TemporaryFolder folder;
  open_log(folder.path(), 3);
  spdlog::info("first {}", 1);
  const fs::path file = folder.path() / "log" / "rank-3.log";
  EXPECT_THAT(read_file(file), HasSubstr("rank 3 info: first 1\n"));
  open_log(folder.path(), 3)->warn("second");
  EXPECT_THAT(read_file(file), AllOf(HasSubstr("first 1\n"), HasSubstr("rank 3 warning: second\n")));
  EXPECT_THAT(names_in(folder.path() / "log"), ElementsAre("rank-3.log"));
}

TEST_F(Log, AFileThatCannotBeOpenedIsNamed) {
  TemporaryFolder folder;
  fs::create_directories(folder.path() / "log" / "rank-0.log");
  EXPECT_THAT(message_of(Fault::run, [&] { open_log(folder.path(), 0); }), HasSubstr("log/rank-0.log"));
  write_file(folder.path() / "file", "x");
  EXPECT_THAT(message_of(Fault::run, [&] { open_log(folder.path() / "file", 0); }), HasSubstr("file/log"));
}

TEST_F(Log, AFullDiskDoesNotEndTheRun) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  TemporaryFolder folder;
  fs::create_directory(folder.path() / "log");
  fs::create_symlink("/dev/full", folder.path() / "log" / "rank-0.log");
  const auto log = open_log(folder.path(), 0);
  EXPECT_NO_THROW(for (int i = 0; i < 100; ++i) log->info(std::string(1000, 'x')));
}

TEST_F(Log, ListenerWritesLandmarksButNotEveryStep) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  LogListener listener(open_log(folder.path(), 0));
  listener.on_start(run.start);
  listener.on_step(ExampleRun::step(1));
  train::StepReport skipped = ExampleRun::step(2);
  skipped.skipped = true, skipped.grad_norm = std::nan("");
  listener.on_step(skipped);
  listener.on_validation({.step = 2, .loss = 3.5, .tokens = 10, .seconds = 1});
  listener.on_saved(2, "run/saved");
  listener.on_end({.step = 2, .seconds = 5, .saved = {}});
  const std::string text = read_file(log_file(folder.path(), 0));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("job {:016x}", job::digest(run.job))), HasSubstr("step 2: skipped"),
                          HasSubstr("norm nan"), HasSubstr("validation loss 3.5"), HasSubstr("saved run/saved"),
                          HasSubstr("run ends at step 2"), Not(HasSubstr("step 1"))));
}

}  // namespace
}  // namespace strata::report
