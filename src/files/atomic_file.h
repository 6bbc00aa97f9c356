#pragma once
// Writing files so that a name either shows the whole new content or what was there before.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace strata::files {

/// Writes to PATH.partial-PID beside the target; `commit` flushes it to disk and renames it. Destroyed without commit, it
/// removes what it wrote. Every failed call throws a run error naming the path and the cause ("no space left on device").
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void commit();

 private:
  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
};

/// The whole of a text file; an input error naming the path if it cannot be read.
std::string read_text(const std::filesystem::path& path);

/// Replaces a file's content in one go.
void write_text(const std::filesystem::path& path, std::string_view text);

/// Puts on disk which names a folder holds; "" is the working directory. File systems that cannot are passed over.
void sync_folder(const std::filesystem::path& folder);

/// A folder built under a temporary name beside the target and renamed when complete; removed if never committed. An existing
/// target is replaced (moved aside first, removed last).
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path path);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();
  const std::filesystem::path& partial() const { return partial_; }  ///< write here
  void commit();

 private:
  std::filesystem::path path_, partial_;
  bool committed_ = false;
};

}  // namespace strata::files
