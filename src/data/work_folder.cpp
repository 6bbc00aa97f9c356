#include "data/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "files/atomic_file.h"

namespace strata::data {

namespace fs = std::filesystem;
constexpr const char* lock_name = "lock";

WorkFolder::WorkFolder(fs::path path) : path_(std::move(path)) {
  while (!lock()) {
  }
}

// False: the process that held the lock has removed the folder meanwhile.
bool WorkFolder::lock() {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw run_error("{}: cannot create: {}", path_.string(), error.message());
  const fs::path name = path_ / lock_name;
  descriptor_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    if (errno == ENOENT) return false;
    throw run_error("{}: cannot create: {}", name.string(), std::strerror(errno));
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    std::array<char, 32> holder{};
    const ssize_t got = ::pread(descriptor_, holder.data(), holder.size() - 1, 0);
    ::close(std::exchange(descriptor_, -1));
    throw input_error("{}: another build of this dataset is under way{}{}: wait for its end, or stop it",
                      path_.string(), got > 0 ? ", as process " : "", got > 0 ? holder.data() : "");
  }
  struct stat held {
  }, named{};
  if (::fstat(descriptor_, &held) != 0 || ::stat(name.c_str(), &named) != 0 || held.st_ino != named.st_ino ||
      held.st_dev != named.st_dev) {
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  const std::string holder = std::to_string(::getpid());
  // Only for messages: whether it succeeds does not matter.
  if (::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, holder.data(), holder.size(), 0) < 0) return true;
  return true;
}

WorkFolder::~WorkFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::optional<nlohmann::ordered_json> WorkFolder::read(std::string_view name) const {
  std::error_code error;
  if (!fs::exists(path_ / name, error)) return std::nullopt;
  try {
    return nlohmann::ordered_json::parse(files::read_text(path_ / name));
  } catch (const nlohmann::json::exception&) {
    throw input_error("{}: this unfinished build is damaged; --restart begins anew", (path_ / name).string());
  }
}

void WorkFolder::write(std::string_view name, const nlohmann::ordered_json& document) const {
  files::write_text(path_ / name, document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void WorkFolder::clear() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error))
    if (entry.path().filename() != lock_name) fs::remove_all(entry.path(), error);
}

void WorkFolder::remove() const {
  std::error_code error;
  clear();
  fs::remove_all(path_, error);
}

}  // namespace strata::data
