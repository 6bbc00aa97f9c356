#include "core/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

namespace strata {

namespace {

int64_t own_status(std::string_view key) {
  std::array<char, 8192> text;  // the file is some 1.5 kB; the memory lines stand in its first half
  const int descriptor = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(descriptor, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  ::close(descriptor);
  return status_bytes({text.data(), size}, key);
}

}  // namespace

int64_t status_bytes(std::string_view status, std::string_view key) {
  while (!status.empty()) {
    std::string_view line = status.substr(0, status.find('\n'));
    status.remove_prefix(std::min(line.size() + 1, status.size()));
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    line.remove_prefix(key.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    int64_t kilobytes = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), kilobytes);
    if (error != std::errc{} || kilobytes < 0) return -1;
    return std::string_view(end, static_cast<size_t>(line.data() + line.size() - end)) == " kB" ? kilobytes * 1024 : -1;
  }
  return -1;
}

int64_t resident_bytes() { return own_status("VmRSS"); }

int64_t peak_resident_bytes() {
  int64_t peak = own_status("VmHWM");
  if (peak < 0) {
    rusage usage{};
    if (::getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss > 0)
      peak = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  }
  return peak;
}

}  // namespace strata
