#pragma once
// A file's bytes, mapped read-only.

#include <cstddef>
#include <filesystem>
#include <span>

namespace strata::files {

/// Owns the mapping. Throws an input error naming the path when the file cannot be opened; an empty file maps to an empty span.
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace strata::files
