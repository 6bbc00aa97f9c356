#include "report/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace strata::report {

namespace {

/// Bytes up to and with the last line break.
int64_t whole_lines(int descriptor, int64_t size) {
  std::array<char, 4096> chunk;
  int64_t end = size;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(chunk.size()));
    const ssize_t got = ::pread(descriptor, chunk.data(), static_cast<size_t>(end - begin), begin);
    if (got != end - begin) return size;
    const size_t at = std::string_view(chunk.data(), static_cast<size_t>(got)).rfind('\n');
    if (at != std::string_view::npos) return begin + static_cast<int64_t>(at) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, Open how) : path_(std::move(path)) {
  const int flags = O_CREAT | O_APPEND | O_CLOEXEC | (how == Open::create ? O_WRONLY | O_EXCL : O_RDWR);
  descriptor_ = ::open(path_.c_str(), flags, 0666);
  if (descriptor_ < 0) throw run_error("{}: cannot create: {}", path_.string(), std::strerror(errno));
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) return;
  size_ = whole_lines(descriptor_, facts.st_size);
  if (size_ < facts.st_size && ::ftruncate(descriptor_, size_) != 0) {
    const int error = errno;
    ::close(std::exchange(descriptor_, -1));
    throw run_error("{}: cannot cut off its unfinished last line: {}", path_.string(), std::strerror(error));
  }
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::write(std::string_view record) {
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOSPC;
      // Best effort: a device has no length to restore.
      if (rest.size() < record.size() && ::ftruncate(descriptor_, size_) != 0) errno = error;
      throw run_error("{}: cannot write: {}", path_.string(), std::strerror(error));
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  size_ += static_cast<int64_t>(record.size());
}

void AppendFile::finish() {
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS)
    throw run_error("{}: cannot flush: {}", path_.string(), std::strerror(errno));
}

}  // namespace strata::report
