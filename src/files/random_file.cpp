#include "files/random_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace strata::files {

RandomFile::RandomFile(std::filesystem::path path) : path_(std::move(path)) {
  // Without O_NONBLOCK the opening of a pipe would wait for its writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw input_error("{}: cannot open: {}", path_.string(), std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw input_error("{}: not a regular file", path_.string());
  }
  size_ = static_cast<int64_t>(status.st_size);
}

RandomFile::RandomFile(std::span<const std::byte> bytes, std::filesystem::path name)
    : path_(std::move(name)), memory_(bytes.data()), size_(static_cast<int64_t>(bytes.size())) {}

RandomFile::RandomFile(RandomFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(other.memory_),
      size_(other.size_) {}

RandomFile& RandomFile::operator=(RandomFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

RandomFile::~RandomFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RandomFile::read(int64_t offset, std::span<std::byte> out) const {
  STRATA_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= size_ - offset, "{}: bytes {} + {} of {}",
               path_.string(), offset, out.size(), size_);
  if (descriptor_ < 0) {
    if (!out.empty()) std::memcpy(out.data(), memory_ + offset, out.size());
    return;
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw run_error("{}: cannot read at byte {}: {}", path_.string(), offset, std::strerror(errno));
    if (got == 0) {
      struct stat now {};
      ::fstat(descriptor_, &now);
      throw input_error("{}: has {} bytes, and had {} when it was opened: something has cut it since", path_.string(),
                        static_cast<int64_t>(now.st_size), size_);
    }
    offset += got;
    out = out.subspan(static_cast<size_t>(got));
  }
}

void RandomFile::will_need(int64_t offset, int64_t bytes) const {
  if (descriptor_ >= 0)
    ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

}  // namespace strata::files
