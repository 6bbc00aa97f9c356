#include "files/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string_view>
#include <utility>

#include "support/scratch.h"

namespace strata::files {
namespace {

using test::error_of;
using test::Scratch;
using test::spill;
using ::testing::HasSubstr;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytes) {
  Scratch scratch;
  spill(scratch / "a", "some bytes");
  const MappedFile file(scratch / "a");
  EXPECT_EQ(text_of(file), "some bytes");
  EXPECT_EQ(file.path(), scratch / "a");
}

TEST(MappedFile, MapsAnEmptyFileToNothing) {
  Scratch scratch;
  spill(scratch / "a", "");
  EXPECT_TRUE(MappedFile(scratch / "a").bytes().empty());
}

TEST(MappedFile, OutlivesTheName) {
  Scratch scratch;
  spill(scratch / "a", "still here");
  const MappedFile file(scratch / "a");
  std::filesystem::remove(scratch / "a");
  EXPECT_EQ(text_of(file), "still here");
}

TEST(MappedFile, Moves) {
  Scratch scratch;
  spill(scratch / "a", "first");
  spill(scratch / "b", "second");
  MappedFile a(scratch / "a");
  const std::byte* before = a.bytes().data();
  MappedFile moved(std::move(a));
  EXPECT_EQ(moved.bytes().data(), before);
  MappedFile b(scratch / "b");
  b = std::move(moved);
  EXPECT_EQ(text_of(b), "first");
  EXPECT_EQ(b.path(), scratch / "a");
}

TEST(MappedFile, NamesWhatItCannotMap) {
  Scratch scratch;
  EXPECT_THAT(error_of([&] { MappedFile file(scratch / "none"); }), HasSubstr("none: cannot open: No such file"));
  EXPECT_THAT(error_of([&] { MappedFile file(scratch.path()); }), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { MappedFile file(scratch / "pipe"); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace strata::files
