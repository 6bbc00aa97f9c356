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
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

}  // namespace

LineReader::LineReader(std::unique_ptr<ByteSource> source, LinePlace from, size_t block_bytes)
    : source_(std::move(source)), block_bytes_(block_bytes), buffer_offset_(from.offset), lines_(from.line) {
  if (from.offset > 0) {
    source_->skip(from.offset);
    return;
  }
  while (buffer_.size() < 300 && fill()) {
  }
  refuse_foreign(source_->path(), buffer_);
  if (buffer_.starts_with(byte_order_mark)) begin_ = searched_ = byte_order_mark.size();
}

bool LineReader::fill() {
  if (at_end_) return false;
  buffer_.erase(0, begin_);
  buffer_offset_ += static_cast<int64_t>(begin_);
  searched_ -= begin_;
  begin_ = 0;
  const size_t held = buffer_.size();
  if (static_cast<int64_t>(held) > longest_line)
    throw input_error("{}:{}: a line of more than {}: is this JSON lines (one object a line)?",
                      source_->path().string(), lines_ + 1, human_bytes(longest_line));
  buffer_.resize(held + block_bytes_);
  const size_t got = source_->read(std::span(buffer_).subspan(held));
  buffer_.resize(held + got);
  at_end_ = got < block_bytes_;
  return got > 0;
}

bool LineReader::next(Line& line) {
  while (true) {
    size_t end = buffer_.find('\n', searched_);
    if (end == std::string::npos) {
      searched_ = buffer_.size();
      if (fill()) continue;
      if (begin_ == buffer_.size()) return false;
      end = buffer_.size();
    }
    line = {std::string_view(buffer_).substr(begin_, end - begin_), ++lines_};
    begin_ = searched_ = std::min(end + 1, buffer_.size());
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
