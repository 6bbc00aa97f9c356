#include "files/json.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/atomic_file.h"

namespace strata::files {

namespace {

using Json = nlohmann::json;

/// Walks the text and notes how far the parser has read, so that an error found between tokens has a place.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator() = default;
  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    *reached_ = at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char** reached_ = nullptr;
};

/// "FILE:LINE:COLUMN" of the byte before `offset`; columns count bytes from 1.
std::string place(std::string_view text, std::string_view file, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  int64_t line = 1;
  size_t line_begin = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == '\n' && i + 1 < before.size()) {
      ++line;
      line_begin = i + 1;
    }
  }
  return fmt::format("{}:{}:{}", file, line, std::max<size_t>(before.size() - line_begin, 1));
}

/// Builds the document from the parser's events; the library's own builder lets the last of two equal keys win.
class Builder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  Builder(std::string_view text, std::string_view file, int max_depth, const char* const* reached)
      : text_(text), file_(file), max_depth_(max_depth), reached_(reached) {}
  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) { return put(value); }
  bool number_unsigned(number_unsigned_t value) { return put(value); }
  bool number_float(number_float_t value, const string_t&) { return put(value); }
  bool string(string_t& value) { return put(std::move(value)); }
  bool binary(binary_t&) { return false; }  // JSON text has none

  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& name) {
    const auto [entry, added] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!added) throw input_error("{}: key {} is given twice", here(), shown(name));
    member_ = &entry->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception...] parse error at line 1, column 2: reason", the reason ending in text out of the file.
    std::string_view reason = error.what();
    if (const size_t end = reason.find("] "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    if (reason.starts_with("parse error at line"))
      if (const size_t end = reason.find(": "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    const std::string quoted = shown(reason, 200);
    throw input_error("{}: not valid JSON: {}", place(text_, file_, position), quoted.substr(1, quoted.size() - 2));
  }

 private:
  std::string here() const { return place(text_, file_, static_cast<size_t>(*reached_ - text_.data())); }

  Json* add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (member_ != nullptr) {
      *member_ = std::move(value);
      return std::exchange(member_, nullptr);
    }
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }
  bool put(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (static_cast<int>(open_.size()) >= max_depth_)
      throw input_error("{}: nested deeper than {} levels", here(), max_depth_);
    open_.push_back(add(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_, file_;
  int max_depth_;
  const char* const* reached_;
  Json root_;
  std::vector<Json*> open_;  // objects and arrays not yet closed; stable, since only the innermost grows
  Json* member_ = nullptr;   // the value slot of the key just read
};

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view file, int max_depth) {
  // The parser takes a NUL byte for the end of its input, whatever follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw input_error("{}: not valid JSON: a NUL byte", place(text, file, nul + 1));
  const char* reached = text.data();
  Builder builder(text, file, max_depth, &reached);
  const CountingIterator begin(text.data(), &reached), end(text.data() + text.size(), &reached);
  const bool whole = Json::sax_parse(begin, end, &builder);
  STRATA_CHECK(whole, "the JSON builder stopped without an error");
  return builder.take();
}

nlohmann::json read_json(const std::string& path, int max_depth) {
  return parse_json(read_text(path), path, max_depth);
}

namespace {

/// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode 15, table 3-7), or 0.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF)
    return continues(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && continues(2) ? 3 : 0;
  if (first >= 0xF0 && first <= 0xF4)
    return continues(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && continues(2) && continues(3) ? 4
                                                                                                                  : 0;
  return 0;
}

}  // namespace

std::string shown(std::string_view name, size_t limit) {
  std::string out = "\"";
  size_t used = 0;
  while (!name.empty()) {
    if (used >= limit) {
      out += "...";
      break;
    }
    const size_t length = utf8_length(name);
    const auto first = static_cast<unsigned char>(name[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      out += fmt::format("\\x{:02x}", first);
    } else if (first == '"' || first == '\\') {
      out += '\\';
      out += name[0];
    } else {
      out += name.substr(0, length);
    }
    const size_t step = std::max<size_t>(length, 1);
    used += step;
    name.remove_prefix(step);
  }
  return out + '"';
}

std::string shown_json(const nlohmann::json& value, size_t limit) {
  if (value.is_string()) return shown(std::string_view(value.get_ref<const std::string&>()), limit);
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.dump();
}

}  // namespace strata::files
