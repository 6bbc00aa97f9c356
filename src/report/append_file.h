#pragma once
// A file that grows by whole records while others may read it.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace strata::report {

/// Every record goes to the system in one call before `write` returns, so a killed process keeps what it had (a machine
/// that loses power may not: only `finish` waits for the disk). All errors are run errors that name the file and the
/// cause.
class AppendFile {
 public:
  enum class Open : uint8_t {
    create,        ///< the file must not exist
    append_lines,  ///< created if missing; the unfinished last line of a process that was killed is cut off first
  };

  AppendFile(std::filesystem::path path, Open how);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  /// Appends all of `record`, or throws; then the file ends with the record before.
  void write(std::string_view record);

  /// Waits until all records are on the disk: a last chance to hear of errors.
  void finish();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;  // in whole records
};

}  // namespace strata::report
