#pragma once
// JSON as other programs write it, read strictly: a key given twice is an error at any depth, and so is nesting deeper
// than a limit. Messages carry the file's name, the line and the column.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace strata::files {

inline constexpr int default_json_depth = 64;

/// The document in `text`; `file` opens every message. Throws an input error on a syntax error (control characters,
/// invalid UTF-8 and trailing text included), a number out of range, a duplicate key, or more than `max_depth` open
/// brackets. Whole numbers that fit 64 bits keep their exact value; larger ones become doubles.
nlohmann::json parse_json(std::string_view text, std::string_view file, int max_depth = default_json_depth);

/// read_text, then parse_json under the path's name.
nlohmann::json read_json(const std::string& path, int max_depth = default_json_depth);

/// A name out of a file as a message shows it: in double quotes, control characters, quotes, backslashes and bytes that
/// are no UTF-8 escaped, cut after `limit` bytes.
std::string shown(std::string_view name, size_t limit = 120);

/// A JSON value as a message shows it: compact, escaped and cut in the same way.
std::string shown_json(const nlohmann::json& value, size_t limit = 120);

}  // namespace strata::files
