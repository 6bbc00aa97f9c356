#pragma once
// What tests of files need: a folder that goes away, the text of an expected error, the shared reference files.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace strata::test {

/// A new empty folder, removed with everything in it.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "strata-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  /// Names of everything directly in it, sorted.
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void spill(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(file.flush()) << path;
}

/// The message of the strata::Error that `action` must throw, of the kind `fault`; "" with a failure if it does not.
template <typename Action>
std::string error_of(Action&& action, Fault fault = Fault::input) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.fault()), static_cast<int>(fault)) << error.what();
    return error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "expected a strata::Error, got: " << other.what();
    return "";
  }
  ADD_FAILURE() << "expected an error, got none";
  return "";
}

/// The folder of reference values: $STRATA_SHARED, or shared/ beside the source tree. May not exist.
inline std::filesystem::path shared_folder() {
  if (const char* given = std::getenv("STRATA_SHARED")) return given;
  return std::filesystem::path(STRATA_SOURCE_DIR).parent_path() / "shared";
}

}  // namespace strata::test

/// Skips the test, saying why, where `path` under the shared folder is missing.
#define STRATA_NEED_SHARED(path)                                               \
  if (!std::filesystem::exists(::strata::test::shared_folder() / (path)))      \
  GTEST_SKIP() << "NOT TESTED: " << (::strata::test::shared_folder() / (path)) \
               << " is missing; set STRATA_SHARED to the "                     \
               << "folder that holds it"
