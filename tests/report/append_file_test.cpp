#include "report/append_file.h"

#include <gmock/gmock.h>

#include "report/example_run.h"

namespace strata::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(AppendFile, RecordsAreThereAsSoonAsTheyAreWritten) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "records";
  AppendFile file(path, AppendFile::Open::append_lines);
  file.write("one\n");
  EXPECT_EQ(read_file(path), "one\n");
  file.write("two\n");
  EXPECT_EQ(read_file(path), "one\ntwo\n");
}

TEST(AppendFile, GoesOnBehindWholeLinesAndCutsATornOne) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "records";
  const std::string kept = "one\n" + std::string(10000, 'x') + "\n";
  for (const std::string& torn : {std::string(), std::string("tw"), std::string(9000, 'y')}) {
    write_file(path, kept + torn);
    AppendFile(path, AppendFile::Open::append_lines).write("two\n");
    EXPECT_EQ(read_file(path), kept + "two\n") << torn.size();
  }
  write_file(path, "no line at all");
  AppendFile(path, AppendFile::Open::append_lines).write("two\n");
  EXPECT_EQ(read_file(path), "two\n");
}

TEST(AppendFile, CreateNeverTouchesWhatIsThere) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "records";
  write_file(path, "mine");
  EXPECT_THAT(message_of(Fault::run, [&] { AppendFile(path, AppendFile::Open::create); }),
              AllOf(HasSubstr(path.string()), HasSubstr("File exists")));
  EXPECT_EQ(read_file(path), "mine");
}

TEST(AppendFile, MissingFolderIsARunErrorThatNamesTheFile) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "none" / "records";
  EXPECT_THAT(message_of(Fault::run, [&] { AppendFile(path, AppendFile::Open::append_lines); }),
              AllOf(HasSubstr(path.string()), HasSubstr("No such file or directory")));
}

TEST(AppendFile, FullDiskIsARunErrorThatNamesTheFile) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  TemporaryFolder folder;
  const fs::path path = folder.path() / "records";
  fs::create_symlink("/dev/full", path);
  AppendFile file(path, AppendFile::Open::append_lines);
  EXPECT_THAT(message_of(Fault::run, [&] { file.write("one\n"); }),
              AllOf(HasSubstr(path.string()), HasSubstr("No space left on device")));
}

TEST(AppendFile, ARecordThatDoesNotFitLeavesNoPartOfItself) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "records";
  AppendFile file(path, AppendFile::Open::append_lines);
  file.write("one\n");
  {
    FileSizeLimit limit(10);
    EXPECT_THAT(message_of(Fault::run, [&] { file.write("two does not fit\n"); }), HasSubstr(path.string()));
  }
  EXPECT_EQ(read_file(path), "one\n");
  file.write("two\n");
  file.finish();
  EXPECT_EQ(read_file(path), "one\ntwo\n");
}

}  // namespace
}  // namespace strata::report
