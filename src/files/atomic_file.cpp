#include "files/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace strata::files {

namespace {

std::filesystem::path partial_name(const std::filesystem::path& path) {
  return path.parent_path() / fmt::format("{}.partial-{}", path.filename().string(), ::getpid());
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // some file systems do not open folders; the rename itself is still atomic
  ::fsync(descriptor);
  ::close(descriptor);
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), partial_(partial_name(path_)) {
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw run_error("{}: cannot create: {}", partial_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw run_error("{}: cannot write: {}", path_.string(), std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL)
    throw run_error("{}: cannot flush: {}", path_.string(), std::strerror(errno));
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    const int error = errno;
    ::unlink(partial_.c_str());
    throw run_error("{}: cannot close: {}", path_.string(), std::strerror(error));
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(partial_.c_str());
    throw run_error("{}: cannot rename into place: {}", path_.string(), std::strerror(error));
  }
  sync_folder(path_.parent_path());
}

std::string read_text(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw input_error("{}: cannot open: {}", path.string(), std::strerror(EISDIR));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw input_error("{}: cannot open: {}", path.string(), std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw input_error("{}: cannot read", path.string());
  return text;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AtomicFolder::AtomicFolder(std::filesystem::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "folder/" means the same
  partial_ = partial_name(path_);
  std::error_code error;
  std::filesystem::remove_all(partial_, error);
  if (!path_.parent_path().empty()) std::filesystem::create_directories(path_.parent_path(), error);
  if (!std::filesystem::create_directory(partial_, error))
    throw run_error("{}: cannot create: {}", partial_.string(), error.message());
}

AtomicFolder::~AtomicFolder() {
  if (committed_) return;
  std::error_code error;
  std::filesystem::remove_all(partial_, error);
}

void AtomicFolder::commit() {
  sync_folder(partial_);
  std::error_code error;
  const std::filesystem::path aside = partial_.string() + ".old";
  const bool replaces = std::filesystem::exists(path_, error);
  if (replaces) std::filesystem::rename(path_, aside, error);
  if (!error) {
    std::filesystem::rename(partial_, path_, error);
    std::error_code ignored;
    if (error && replaces) std::filesystem::rename(aside, path_, ignored);  // what was there before goes back
  }
  if (error) throw run_error("{}: cannot rename into place: {}", path_.string(), error.message());
  committed_ = true;
  sync_folder(path_.parent_path());
  if (replaces) std::filesystem::remove_all(aside, error);
}

}  // namespace strata::files
