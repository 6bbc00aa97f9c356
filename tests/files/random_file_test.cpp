#include "files/random_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "support/scratch.h"

namespace strata::files {
namespace {

std::string text(const RandomFile& file, int64_t offset, size_t count) {
  std::string out(count, '?');
  file.read(offset, std::as_writable_bytes(std::span(out)));
  return out;
}

template <typename Call>
std::string refused(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::input);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(RandomFile, ReadsAnywhereAndNamesAFileThatIsCut) {
  const test::Scratch folder;
  const std::filesystem::path path = folder.path() / "file";
  std::ofstream(path) << "0123456789";
  RandomFile file(path);
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(text(file, 3, 4), "3456");
  EXPECT_EQ(text(file, 10, 0), "");
  file.will_need(0, 10);
  EXPECT_THROW(text(file, 8, 3), InternalError);
  const RandomFile moved = std::move(file);
  EXPECT_EQ(text(moved, 0, 10), "0123456789");
  std::filesystem::resize_file(path, 5);
  EXPECT_EQ(text(moved, 0, 5), "01234");
  const std::string message = refused([&] { text(moved, 2, 8); });
  EXPECT_NE(message.find(path.string()), std::string::npos) << message;
  EXPECT_NE(message.find("has 5 bytes, and had 10"), std::string::npos) << message;
}

TEST(RandomFile, ReadsBytesAtHand) {
  const std::string bytes = "abcdef";
  const RandomFile file(std::as_bytes(std::span(bytes)), "name");
  EXPECT_EQ(file.size(), 6);
  EXPECT_EQ(text(file, 2, 3), "cde");
  file.will_need(0, 6);
}

TEST(RandomFile, RefusesWhatIsNoFile) {
  const test::Scratch folder;
  EXPECT_NE(refused([&] { RandomFile file(folder.path() / "none"); }).find("cannot open"), std::string::npos);
  EXPECT_NE(refused([&] { RandomFile file(folder.path()); }).find("not a regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refused([&] { RandomFile file(folder.path() / "pipe"); }).find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace strata::files
