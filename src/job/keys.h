#pragma once
// The table of every key that a job file may hold. Parsing, suggestions, `config show`, --set and the documentation
// come from it; adding a key is adding a row (keys.cpp).

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::job {

struct KeyDoc {
  std::string name;      ///< "optimizer.schedule.warmup"
  std::string type;      ///< "number", "whole number", "\"none\" | \"full\"", ...
  std::string fallback;  ///< what holds without it, as TOML or in words; "required"
  std::string doc;       ///< one line
};

/// Every key, in the order of `config show`.
std::span<const KeyDoc> keys();

/// The table in Markdown, one section a table of the file.
std::string keys_markdown();

/// A file that comes with Strata: FOLDER/NAME.toml, looked for in $STRATA_HOME, then in ../share/strata beside the
/// folder of the running program, then in the source folder it was built from. Empty if there is none.
std::filesystem::path find_shipped(std::string_view folder, std::string_view name);

/// Names (without .toml) of all such files in a folder, sorted.
std::vector<std::string> shipped_names(std::string_view folder);

}  // namespace strata::job
