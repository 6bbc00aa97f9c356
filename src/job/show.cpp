#include <xxhash.h>

#include <algorithm>

#include "job/key.h"
#include "job/placement.h"

namespace strata::job {

namespace {

std::string quoted_text(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\', result += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result + "\"";
}

std::string key_text(const std::string& key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? key : quoted_text(key);
}

}  // namespace

std::string toml_text(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string: return quoted_text(value.get_ref<const std::string&>());
    case Json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case Json::value_t::number_integer: return fmt::format("{}", value.get<int64_t>());
    case Json::value_t::number_unsigned: return fmt::format("{}", value.get<uint64_t>());
    case Json::value_t::number_float: {
      // Shortest text that reads back to the same bits; TOML tells floats by a point or an exponent.
      std::string text = fmt::format("{}", value.get<double>());
      if (text.find_first_of(".en") == std::string::npos) text += ".0";
      return text;
    }
    case Json::value_t::array: {
      std::string text;
      for (const Json& item : value) text += (text.empty() ? "" : ", ") + toml_text(item);
      return "[" + text + "]";
    }
    case Json::value_t::object: {
      std::string text;
      for (const auto& [key, item] : value.items())
        if (!item.is_null()) text += (text.empty() ? "" : ", ") + key_text(key) + " = " + toml_text(item);
      return text.empty() ? "{}" : "{ " + text + " }";
    }
    default: break;
  }
  STRATA_CHECK(false, "{} has no TOML form", value.type_name());
}

Json to_json(const Job& job) {
  Json root = Json::object();
  for (const Key& key : key_table()) {
    if (key.name == "model.bias") continue;  // stands for two others
    Json* table = &root;
    std::string_view name = key.name;
    for (size_t dot; (dot = name.find('.')) != std::string_view::npos; name.remove_prefix(dot + 1))
      table = &(*table)[std::string(name.substr(0, dot))];
    (*table)[std::string(name)] = key.applies && !key.applies(job) ? Json() : key.get(job);
  }
  return root;
}

std::string show(const Job& job) {
  const Json root = to_json(job);
  std::string text;
  for (const auto& [section, table] : root.items()) {
    std::string lines;
    for (const auto& [key, value] : table.items()) {
      const bool subtable = value.is_object();
      const std::string shown = value.is_null() ? "" : toml_text(value);
      if (shown.empty() || (subtable && shown == "{}")) continue;
      lines += fmt::format("{} = {}\n", key_text(key), shown);
    }
    if (!lines.empty()) text += fmt::format("{}[{}]\n{}", text.empty() ? "" : "\n", section, lines);
  }
  return text;
}

uint64_t digest(const Job& job) {
  const std::string text = show(job);
  return XXH64(text.data(), text.size(), 0);
}

}  // namespace strata::job
