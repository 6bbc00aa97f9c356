#include "files/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "support/scratch.h"

namespace strata::files {
namespace {

using test::error_of;
using test::Scratch;
using test::slurp;
using test::spill;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// For its lifetime no file of this process may grow past `bytes`: writing fails as it does on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(AtomicFile, ShowsNothingBeforeCommitAndEverythingAfter) {
  Scratch scratch;
  AtomicFile file(scratch / "a.txt");
  file.write("one ");
  file.write("two");
  EXPECT_FALSE(std::filesystem::exists(scratch / "a.txt"));
  file.commit();
  EXPECT_EQ(slurp(scratch / "a.txt"), "one two");
  EXPECT_THAT(scratch.entries(), ElementsAre("a.txt"));
}

TEST(AtomicFile, LeavesTheOldContentWithoutCommit) {
  Scratch scratch;
  spill(scratch / "a.txt", "old");
  {
    AtomicFile file(scratch / "a.txt");
    file.write("new");
  }
  EXPECT_EQ(slurp(scratch / "a.txt"), "old");
  EXPECT_THAT(scratch.entries(), ElementsAre("a.txt"));
}

TEST(AtomicFile, ReplacesTheOldContent) {
  Scratch scratch;
  spill(scratch / "a.txt", "something longer than the new");
  write_text(scratch / "a.txt", "new");
  EXPECT_EQ(slurp(scratch / "a.txt"), "new");
}

TEST(AtomicFile, NamesAFolderThatIsMissing) {
  Scratch scratch;
  const std::string message = error_of([&] { AtomicFile file(scratch / "none/a.txt"); }, Fault::run);
  EXPECT_THAT(message, HasSubstr("none/a.txt"));
  EXPECT_THAT(message, HasSubstr("No such file or directory"));
}

TEST(AtomicFile, LeavesNothingBehindWhenTheDiskIsFull) {
  Scratch scratch;
  {
    AtomicFile file(scratch / "big");
    FileSizeLimit limit(1 << 16);
    const std::string block(1 << 15, 'x');
    const std::string message = error_of(
        [&] {
          for (int i = 0; i < 4; ++i) file.write(block);
        },
        Fault::run);
    EXPECT_THAT(message, HasSubstr("big: cannot write"));
  }
  EXPECT_THAT(scratch.entries(), IsEmpty());
}

TEST(AtomicFile, CannotReplaceAFolder) {
  Scratch scratch;
  std::filesystem::create_directory(scratch / "a");
  spill(scratch / "a/keep", "kept");
  EXPECT_THAT(error_of([&] { write_text(scratch / "a", "text"); }, Fault::run), HasSubstr("cannot rename into place"));
  EXPECT_THAT(scratch.entries(), ElementsAre("a"));
  EXPECT_EQ(slurp(scratch / "a/keep"), "kept");
}

TEST(ReadText, ReadsBytesAsTheyAre) {
  Scratch scratch;
  const std::string text("a\0b\r\n\xff", 6);
  spill(scratch / "t", text);
  EXPECT_EQ(read_text(scratch / "t"), text);
}

TEST(ReadText, NamesWhatItCannotRead) {
  Scratch scratch;
  EXPECT_THAT(error_of([&] { read_text(scratch / "none"); }), HasSubstr("none: cannot open: No such file"));
  errno = ENOSPC;  // a leftover of something else must not get into the message
  EXPECT_THAT(error_of([&] { read_text(scratch.path()); }), HasSubstr("Is a directory"));
}

TEST(AtomicFolder, ShowsNothingBeforeCommitAndEverythingAfter) {
  Scratch scratch;
  AtomicFolder folder(scratch / "out");
  spill(folder.partial() / "a", "1");
  EXPECT_FALSE(std::filesystem::exists(scratch / "out"));
  folder.commit();
  EXPECT_EQ(slurp(scratch / "out/a"), "1");
  EXPECT_THAT(scratch.entries(), ElementsAre("out"));
}

TEST(AtomicFolder, IsRemovedWithoutCommitAndKeepsTheOld) {
  Scratch scratch;
  std::filesystem::create_directory(scratch / "out");
  spill(scratch / "out/old", "1");
  {
    AtomicFolder folder(scratch / "out");
    spill(folder.partial() / "new", "2");
  }
  EXPECT_THAT(scratch.entries(), ElementsAre("out"));
  EXPECT_EQ(slurp(scratch / "out/old"), "1");
}

TEST(AtomicFolder, ReplacesAnOldOneWhole) {
  Scratch scratch;
  std::filesystem::create_directory(scratch / "out");
  spill(scratch / "out/old", "1");
  AtomicFolder folder(scratch / "out/");  // a trailing slash means the same folder
  spill(folder.partial() / "new", "2");
  folder.commit();
  EXPECT_THAT(scratch.entries(), ElementsAre("out"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "out/old"));
  EXPECT_EQ(slurp(scratch / "out/new"), "2");
}

TEST(AtomicFolder, MakesTheFoldersAboveIt) {
  Scratch scratch;
  AtomicFolder folder(scratch / "a/b/out");
  folder.commit();
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "a/b/out"));
}

TEST(AtomicFolder, PutsTheOldBackWhenTheNewIsGone) {
  Scratch scratch;
  std::filesystem::create_directory(scratch / "out");
  spill(scratch / "out/old", "1");
  AtomicFolder folder(scratch / "out");
  std::filesystem::remove_all(folder.partial());  // someone cleaned up too much
  EXPECT_THAT(error_of([&] { folder.commit(); }, Fault::run), HasSubstr("cannot rename into place"));
  EXPECT_EQ(slurp(scratch / "out/old"), "1");
}

TEST(AtomicFolder, CannotBeMadeBelowAFile) {
  Scratch scratch;
  spill(scratch / "file", "");
  EXPECT_THAT(error_of([&] { AtomicFolder folder(scratch / "file/out"); }, Fault::run), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace strata::files
