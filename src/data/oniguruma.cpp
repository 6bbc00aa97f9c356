#include "data/oniguruma.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/utf8.h"
#include "files/json.h"

namespace strata::data {

namespace {

constexpr std::string_view word_class = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside of brackets Oniguruma looks the first 256 characters up in a table, in which fractions and superscript digits
// are word characters as well.
constexpr std::string_view word_class_alone = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

class Translation {
 public:
  Translation(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    if (valid_utf8_prefix(in_) != in_.size()) refuse("bytes that are no UTF-8");
    while (at_ < in_.size()) step();
    if (!groups_.empty()) refuse("a group that is not closed");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw input_error("{}: the pattern {} cannot be followed here: {}", where_, files::shown(in_, 400), what);
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void atom() { atom_ = out_.size(); }

  void step() {
    const char c = in_[at_];
    switch (c) {
      case '\\': escape(false); return;
      case '[': character_class(); return;
      case '(': open_group(); return;
      case ')':
        if (groups_.empty()) refuse("a closing parenthesis too many");
        atom_ = groups_.back();
        groups_.pop_back();
        out_ += c;
        ++at_;
        return;
      case '*':
      case '+':
      case '?':
        out_ += c;
        ++at_;
        if (peek() == '+' || peek() == '?') out_ += in_[at_++];
        return;
      case '{': interval(); return;
      case '|':
      case '^':
      case '$':
        out_ += c;
        ++at_;
        atom();
        return;
      default: literal();
    }
  }

  // One character that stands for itself (or the dot).
  void literal() {
    atom();
    do out_ += in_[at_++];
    while (at_ < in_.size() && (in_[at_] & '\xC0') == '\x80');
  }

  void interval() {
    size_t end = at_ + 1;
    const auto number = [&] {
      const size_t begin = end;
      while (end < in_.size() && std::isdigit(static_cast<unsigned char>(in_[end])) != 0) ++end;
      return std::string(in_.substr(begin, end - begin));
    };
    const std::string low = number();
    const bool comma = end < in_.size() && in_[end] == ',';
    std::string high;
    if (comma) {
      ++end;
      high = number();
    }
    if (end >= in_.size() || in_[end] != '}' || (low.empty() && high.empty())) {  // no interval: a brace
      atom();
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = end + 1;
    out_ += '{' + (low.empty() ? "0" : low) + (comma ? "," + high : "") + '}';
    if (peek() == '?') {
      if (!comma) refuse("a question mark behind {n}");
      out_ += in_[at_++];
      return;
    }
    // Not possessive, as it would be in PCRE2, but repeated once more.
    if (peek() == '+' || peek() == '*') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  void open_group() {
    static constexpr std::array<std::string_view, 7> plain = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "("};
    const std::string_view rest = in_.substr(at_);
    if (rest.starts_with("(*")) refuse("a verb behind (*");
    for (const std::string_view open : plain) {
      if (!rest.starts_with(open) || (open == "(" && rest.starts_with("(?"))) continue;
      groups_.push_back(out_.size());
      out_ += open;
      at_ += open.size();
      atom();
      return;
    }
    // Only upper and lower case: (?i:...) anywhere, (?i) in front of everything.
    for (const std::string_view open : {std::string_view("(?i:"), std::string_view("(?-i:")}) {
      if (!rest.starts_with(open)) continue;
      groups_.push_back(out_.size());
      out_ += open;
      at_ += open.size();
      atom();
      return;
    }
    if (at_ == 0 && rest.starts_with("(?i)")) {
      out_ += "(?i)";
      at_ += 4;
      return;
    }
    refuse("the group " + files::shown(rest.substr(0, 6)));
  }

  void escape(bool in_class) {
    if (!in_class) atom();
    if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
    const char c = in_[at_ + 1];
    at_ += 2;
    const auto bracketed = [&](std::string_view set, bool negated) {
      if (in_class && negated) refuse("a negated class within brackets");
      if (in_class)
        out_ += set;
      else
        out_.append(negated ? "[^" : "[").append(set).append("]");
    };
    switch (c) {
      case 's': out_ += R"(\p{White_Space})"; return;
      case 'S': out_ += R"(\P{White_Space})"; return;
      case 'd': out_ += R"(\p{Nd})"; return;
      case 'D': out_ += R"(\P{Nd})"; return;
      case 'w': bracketed(in_class ? word_class : word_class_alone, false); return;
      case 'W': bracketed(in_class ? word_class : word_class_alone, true); return;
      case 'h': bracketed("0-9a-fA-F", false); return;
      case 'H': bracketed("0-9a-fA-F", true); return;
      case 'p':
      case 'P': property(c == 'P'); return;
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e': (out_ += '\\') += c; return;
      case 'v': out_ += R"(\x0b)"; return;
      case 'x': {
        if (peek() == '{') {
          const size_t end = in_.find('}', at_);
          const std::string_view digits =
              end == std::string_view::npos ? std::string_view() : in_.substr(at_ + 1, end - at_ - 1);
          code_point(digits);
          at_ = end + 1;
          return;
        }
        size_t count = 0;
        while (count < 2 && is_hex(peek(count))) ++count;
        if (count == 0 || (count == 2 && peek() > '7')) refuse("\\x without a character's code below 80");
        code_point(in_.substr(at_, count));
        at_ += count;
        return;
      }
      case 'u':
        for (size_t i = 0; i < 4; ++i)
          if (!is_hex(peek(i))) refuse("\\u without four digits");
        code_point(in_.substr(at_, 4));
        at_ += 4;
        return;
      case 'A':
      case 'z':
      case 'Z':
        if (in_class) refuse("an anchor within brackets");
        (out_ += '\\') += c;
        return;
      case 'b':
        if (in_class) {
          out_ += R"(\x08)";
        } else {
          const std::string word = "[" + std::string(word_class_alone) + "]";
          out_ += "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
        }
        return;
      default:
        if (is_name(c)) refuse("\\" + std::string(1, c));
        out_ += '\\';
        out_ += c;
        if ((c & '\x80') != 0) {  // an escaped character beyond ASCII is itself
          out_.erase(out_.size() - 2, 1);
          while (at_ < in_.size() && (in_[at_] & '\xC0') == '\x80') out_ += in_[at_++];
        }
    }
  }

  void code_point(std::string_view digits) {
    if (digits.empty() || digits.size() > 8 || !std::all_of(digits.begin(), digits.end(), is_hex))
      refuse("a character's code that is none");
    out_.append(R"(\x{)").append(digits).append("}");
  }

  // \p{Name}, \p{^Name}, \P{Name}; \pL.
  void property(bool negated) {
    std::string_view name;
    if (peek() == '{') {
      const size_t end = in_.find('}', at_);
      if (end == std::string_view::npos) refuse("\\p{ without }");
      name = in_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    } else {
      name = in_.substr(std::min(at_, in_.size()), 1);
      at_ += 1;
    }
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string plain;
    for (const char c : name)
      if (c != ' ' && c != '_' && c != '-') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    out_.append(negated ? R"(\P{)" : R"(\p{)").append(pcre2_property(plain)).append("}");
  }

  std::string pcre2_property(const std::string& plain) const {
    static constexpr std::pair<std::string_view, std::string_view> names[] = {
        {"letter", "L"},
        {"uppercaseletter", "Lu"},
        {"lowercaseletter", "Ll"},
        {"titlecaseletter", "Lt"},
        {"modifierletter", "Lm"},
        {"otherletter", "Lo"},
        {"mark", "M"},
        {"combiningmark", "M"},
        {"nonspacingmark", "Mn"},
        {"spacingmark", "Mc"},
        {"enclosingmark", "Me"},
        {"number", "N"},
        {"decimalnumber", "Nd"},
        {"letternumber", "Nl"},
        {"othernumber", "No"},
        {"punctuation", "P"},
        {"symbol", "S"},
        {"separator", "Z"},
        {"other", "C"},
        {"alphabetic", "Alphabetic"},
        {"alpha", "Alphabetic"},
        {"whitespace", "White_Space"},
        {"space", "White_Space"},
        {"digit", "Nd"},
        {"uppercase", "Uppercase"},
        {"lowercase", "Lowercase"},
        {"ideographic", "Ideographic"},
        {"emoji", "Emoji"},
    };
    for (const auto& [name, short_name] : names)
      if (plain == name) return std::string(short_name);
    static constexpr std::string_view categories[] = {"l",  "lu", "ll", "lt", "lm", "lo", "m",  "mn", "mc", "me",
                                                      "n",  "nd", "nl", "no", "p",  "pc", "pd", "ps", "pe", "pi",
                                                      "pf", "po", "s",  "sm", "sc", "sk", "so", "z",  "zs", "zl",
                                                      "zp", "c",  "cc", "cf", "cn", "co", "cs"};
    if (std::find(std::begin(categories), std::end(categories), plain) != std::end(categories)) {
      std::string category = plain;
      category[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(category[0])));
      return category;
    }
    if (plain.size() < 3 || !std::all_of(plain.begin(), plain.end(), is_name)) refuse("the class \\p{" + plain + "}");
    return "sc:" + plain;  // a script, or PCRE2 will say that it is none
  }

  void character_class() {
    atom();
    out_ += in_[at_++];
    if (peek() == '^') out_ += in_[at_++];
    if (peek() == ']') {  // first in its class, it stands for itself
      out_ += "\\]";
      ++at_;
    }
    // Brackets within brackets only add their characters.
    for (int depth = 1; depth > 0;) {
      if (at_ >= in_.size()) refuse("brackets that are not closed");
      const char c = in_[at_];
      if (c == '\\') {
        escape(true);
        continue;
      }
      if (c == '[' && (peek(1) == ':' || peek(1) == '^' || peek(1) == ']'))
        refuse("negated or named brackets in brackets");
      if (c == '&' && peek(1) == '&') refuse("an intersection of classes");
      ++at_;
      if (c == '[')
        ++depth;
      else if (c == ']')
        --depth;
      else
        out_ += c;
    }
    out_ += ']';
  }

  std::string_view in_;
  std::string_view where_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last thing that can be repeated begins in out_
  std::vector<size_t> groups_;  // where the open ones begin in out_
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view pattern, std::string_view where) {
  return Translation(pattern, where).run();
}

}  // namespace strata::data
