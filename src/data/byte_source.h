#pragma once
// The bytes of a text file, uncompressed on the way where it is compressed.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace strata::data {

/// A stream of bytes, read once from front to back. What the file is is told by how it begins, not by its name: gzip
/// (RFC 1952, members one after another), zstd (frames one after another, skippable ones included), or plain.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Throws an input error naming the path for a file that cannot be opened or that is compressed in another way.
  static std::unique_ptr<ByteSource> open(const std::filesystem::path& path);

  /// Fills `out` but for the end of the stream; 0: the end. Throws an input error naming file and place where
  /// compressed data is cut off or damaged, and a run error where the disk gives up.
  virtual size_t read(std::span<char> out) = 0;
  /// Passes over the next `bytes`; fewer are left: an input error.
  virtual void skip(int64_t bytes);
  /// Bytes of the file itself that have been used so far.
  virtual int64_t stored_bytes() const = 0;
  virtual bool compressed() const = 0;
  const std::filesystem::path& path() const { return path_; }

 protected:
  explicit ByteSource(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// Throws an input error if a text's first bytes (the first 300, where there are as many) say that it is something else:
/// other compression, an archive, UTF-16, a table, a dataset.
void refuse_foreign(const std::filesystem::path& path, std::string_view start);

/// Whether the name ends with .gz or .zst; `rest` is it without.
bool strip_compression(std::string_view name, std::string_view& rest);

}  // namespace strata::data
