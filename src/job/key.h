#pragma once
// Inside job/: one row of the table of keys, and where a value was given.

#include <toml++/toml.h>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "job/job.h"

namespace strata::job {

using Json = nlohmann::ordered_json;

/// A file or a --set option that values come from.
struct Origin {
  std::string label;           ///< path as the user wrote it, or the whole option
  std::filesystem::path base;  ///< absolute folder that relative paths start from
  bool option = false;
};

/// One value of one key, as given.
struct Given {
  std::string name;  ///< full name of the key
  const toml::node* node = nullptr;
  const Origin* origin = nullptr;
  int line = 0;
  int layer = 0;  ///< 0 preset, 1 file, 2 options: the higher wins

  /// "job.toml:12" or "--set batch.micro=x"
  std::string place(int at_line = 0) const {
    return origin->option ? origin->label : fmt::format("{}:{}", origin->label, at_line > 0 ? at_line : line);
  }
  /// "job.toml:12: batch.micro"
  std::string where() const { return fmt::format("{}: {}", place(), name); }
};

struct Key {
  std::string name;
  std::string type;      ///< for people
  std::string fallback;  ///< for people; empty: the value in Job{}
  std::string doc;
  std::function<void(Job&, const Given&)> set;  ///< checks type and range, throws input errors
  std::function<Json(const Job&)> get;          ///< null: no value to show
  bool required = false;
  bool text = false;  ///< a bare --set value is always a string

  // Keys that mean something only under certain values of another.
  std::function<bool(const Job&)> applies = nullptr;
  std::string only = {};     ///< "family gpt_neox or llama": when it applies
  std::string depends = {};  ///< the other key

  Key& when(std::string other, std::string condition, std::function<bool(const Job&)> test) {
    depends = std::move(other), only = std::move(condition), applies = std::move(test);
    return *this;
  }
};

/// Every row, in the order in which they are shown; sections and subtables are contiguous.
std::span<const Key> key_table();
const Key* find_key(std::string_view name);

/// A value as TOML, on one line.
std::string toml_text(const Json& value);

/// What a family brings along unless told otherwise.
void set_family(model::Config& config, model::Family family);

}  // namespace strata::job
