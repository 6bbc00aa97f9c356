#pragma once
// A file read at any place, through the descriptor rather than a mapping: a file that shrinks or a disk that fails is an
// error with a name instead of a fault, and what was read counts as nobody's memory.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace strata::files {

/// Immutable once made; reading is safe from several threads and allocates nothing. A file that is removed or replaced
/// after it was opened goes on being read as it was.
class RandomFile {
 public:
  /// Throws an input error naming the path when it is no regular file or cannot be opened.
  explicit RandomFile(std::filesystem::path path);
  /// Bytes at hand instead of a file; they outlive this object. `name` is for messages.
  RandomFile(std::span<const std::byte> bytes, std::filesystem::path name);
  RandomFile(RandomFile&& other) noexcept;
  RandomFile& operator=(RandomFile&& other) noexcept;
  ~RandomFile();

  const std::filesystem::path& path() const { return path_; }
  /// As it was when opened.
  int64_t size() const { return size_; }

  /// Bytes offset .. offset + out.size() - 1. Throws an input error, naming the path, where the file ends before that
  /// (it was cut since it was opened), and a run error where the disk gives up.
  void read(int64_t offset, std::span<std::byte> out) const;

  /// Lets the system fetch these bytes into its cache in the background.
  void will_need(int64_t offset, int64_t bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  const std::byte* memory_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace strata::files
