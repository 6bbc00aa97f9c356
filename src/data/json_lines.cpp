#include "data/json_lines.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "files/json.h"

namespace strata::data {

namespace {

constexpr std::string_view blanks = " \t\r\f\v";

}  // namespace

LineReader::LineReader(std::unique_ptr<ByteSource> source, LinePlace from, size_t block_bytes)
    : window_(std::move(source), from.offset, block_bytes), lines_(from.line) {}

bool LineReader::more() {
  if (static_cast<int64_t>(window_.buffer.size() - window_.begin) > longest_line)
    throw input_error("{}:{}: a line of more than {}: is this JSON lines (one object a line)?",
                      window_.source->path().string(), lines_ + 1, human_bytes(longest_line));
  return window_.fill();
}

bool LineReader::next(Line& line) {
  while (true) {
    size_t end = window_.buffer.find('\n', window_.searched);
    if (end == std::string::npos) {
      window_.searched = window_.buffer.size();
      if (more()) continue;
      if (window_.begin == window_.buffer.size()) return false;
      end = window_.buffer.size();
    }
    line = {std::string_view(window_.buffer).substr(window_.begin, end - window_.begin), ++lines_};
    window_.begin = window_.searched = std::min(end + 1, window_.buffer.size());
    if (line.text.find_first_not_of(blanks) != std::string_view::npos) return true;
  }
}

namespace {

// Picks one member out of the events of nlohmann's parser, which checks the whole line.
class PickText final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit PickText(std::string_view key) : key_(key) {}
  std::string text;
  bool found = false, twice = false;
  const char* instead = nullptr;    // what stands where a string is wanted
  const char* no_object = nullptr;  // what the line is
  std::string fault;                // syntax

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a truth value"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool string(string_t& given) override {
    if (depth_ == 1 && wanted_) {
      text = std::move(given);
      wanted_ = false;
      return true;
    }
    return value("a string");
  }
  bool binary(binary_t&) override { return value("binary data"); }
  bool start_object(size_t) override {
    if (depth_ > 0 && !value("an object")) return false;
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    wanted_ = name == key_;
    if (!wanted_) return true;
    twice = found;
    found = true;
    return !twice;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (!value("a list")) return false;
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: REASON"
    const std::string what = error.what();
    const size_t reason = what.find(": ");
    fault = fmt::format("column {}: {}", at, reason == std::string::npos ? what : what.substr(reason + 2));
    return false;
  }

 private:
  bool value(const char* kind) {
    if (depth_ == 0) {
      no_object = kind;
      return false;
    }
    if (depth_ == 1 && wanted_) {
      instead = kind;
      return false;
    }
    return true;
  }
  std::string_view key_;
  int64_t depth_ = 0;
  bool wanted_ = false;
};

}  // namespace

std::string json_text(std::string_view line, std::string_view key, std::string_view file, int64_t number) {
  PickText pick(key);
  if (nlohmann::json::sax_parse(line.begin(), line.end(), &pick) && pick.found) return std::move(pick.text);
  const auto fail = [&](const std::string& what) { return input_error("{}:{}: {}", file, number, what); };
  if (!pick.fault.empty()) throw fail("not JSON: " + pick.fault);
  if (pick.no_object != nullptr)
    throw fail(
        fmt::format("holds {}, not an object: a file of JSON lines has an object a line, such as {{\"{}\": \"...\"}}",
                    pick.no_object, key));
  if (pick.twice) throw fail(fmt::format("the key {} is there twice", files::shown(key)));
  if (pick.instead != nullptr)
    throw fail(fmt::format("the key {} holds {}, not a string", files::shown(key), pick.instead));
  throw fail(
      fmt::format("no key {} in this object; name the key that holds the text with --json-key", files::shown(key)));
}

}  // namespace strata::data
