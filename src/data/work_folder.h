#pragma once
// The folder of a build under way, so that one that was killed can be gone on with.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace strata::data {

/// PREFIX.building, held by one process at a time. In it: `lock`; what writers keep under names of their own; and small
/// documents, each replaced in one go.
class WorkFolder {
 public:
  /// Makes the folder if there is none, and locks it. Throws an input error if another process holds it. The lock goes
  /// with the process, however it ends; on a file system without locks there is none.
  explicit WorkFolder(std::filesystem::path path);
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  /// The JSON document of this name. None: there is no such file. Throws an input error if it cannot be understood.
  std::optional<nlohmann::ordered_json> read(std::string_view name) const;
  void write(std::string_view name, const nlohmann::ordered_json& document) const;

  /// Removes all that is in it but the lock.
  void clear() const;
  /// Removes the folder.
  void remove() const;

 private:
  bool lock();
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace strata::data
