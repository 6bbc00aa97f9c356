#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "job/keys.h"

namespace strata::job {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> roots() {
  std::vector<fs::path> result;
  if (const char* home = std::getenv("STRATA_HOME"); home && *home) result.emplace_back(home);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) result.push_back(program.parent_path().parent_path() / "share" / "strata");
  result.emplace_back(STRATA_BUILT_FROM);
  return result;
}

}  // namespace

fs::path find_shipped(std::string_view folder, std::string_view name) {
  // A name, never a way out of the folder.
  if (name.empty() || name.find('/') != std::string_view::npos) return {};
  std::error_code error;
  for (const fs::path& root : roots()) {
    const fs::path file = root / folder / (std::string(name) + ".toml");
    if (fs::is_regular_file(file, error)) return file;
  }
  return {};
}

std::vector<std::string> shipped_names(std::string_view folder) {
  std::vector<std::string> names;
  for (const fs::path& root : roots()) {
    std::error_code error;
    for (fs::directory_iterator entry(root / folder, error), end; !error && entry != end; entry.increment(error))
      if (entry->path().extension() == ".toml") names.push_back(entry->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace strata::job
