#include "data/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "data/oniguruma.h"
#include "data/unicode.h"
#include "files/json.h"

namespace strata::data {

namespace {

template <auto free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    free(pointer);
  }
};
using CodePointer = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;

std::string error_text(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

CodePointer compile(const std::string& pattern, int& error, size_t& place) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  CodePointer code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                                 context.get()));
  if (code) pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without it (an unusual processor) it is only slower
  return code;
}

// What matching needs and one thread keeps.
struct Workspace {
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(size_t{32} << 10, size_t{64} << 20, nullptr)};

  Workspace() {
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_match_limit(context.get(), 100'000'000);
    pcre2_set_depth_limit(context.get(), 100'000'000);
    pcre2_set_heap_limit(context.get(), 1u << 20);  // KiB
  }

  int match(const pcre2_code* code, std::string_view text, size_t from) {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found =
          pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), context.get());
    return found;
  }
  Range range() const {
    const size_t* const ends = pcre2_get_ovector_pointer(data.get());
    return {ends[0], ends[1]};
  }
};

Workspace& workspace() {
  thread_local Workspace one;
  return one;
}

// Characters that CharacterTable knows and this PCRE2, of an older Unicode, does not: for each, an older one of the same
// category and length in UTF-8 that takes its place in what PCRE2 gets to see.
class Substitutes {
 public:
  static const Substitutes& get() {
    static const Substitutes one;
    return one;
  }

  /// `text`, or a copy of it in `buffer` with every such character replaced.
  std::string_view apply(std::string_view text, std::string& buffer) const {
    bool copied = false;
    for (size_t at = 0; at < text.size();) {
      if (static_cast<unsigned char>(text[at]) < 0xE0) {  // none is so short
        ++at;
        continue;
      }
      const Character character = decode_utf8(text.data() + at);
      if (const char32_t other = replacement(character.code); other != 0) {
        if (!copied) buffer.assign(text);
        copied = true;
        std::string written;
        append_utf8(other, written);
        buffer.replace(at, character.length, written);
      }
      at += character.length;
    }
    return copied ? std::string_view(buffer) : text;
  }

 private:
  Substitutes() {
    const CharacterTable& table = CharacterTable::get();
    // One text of all characters that have three or four bytes and a category.
    std::string all;
    for (char32_t code = 0x800; code < CharacterTable::size; ++code)
      if ((code < 0xD800 || code > 0xDFFF) && table.category(code) != 0) append_utf8(code, all);
    int error = 0;
    size_t place = 0;
    const CodePointer unassigned = compile(R"(\p{Cn})", error, place);
    STRATA_CHECK(unassigned != nullptr);
    std::array<std::array<char32_t, 32>, 2> known{};
    std::vector<char32_t> unknown;
    size_t next = 0;
    const auto keep_known = [&](size_t end) {
      while (next < end) {
        const Character c = decode_utf8(all.data() + next);
        char32_t& first = known[c.length - 3][static_cast<size_t>(table.category(c.code))];
        if (first == 0) first = c.code;
        next += c.length;
      }
    };
    for (size_t from = 0; from < all.size() && workspace().match(unassigned.get(), all, from) >= 0;) {
      const Range found = workspace().range();
      keep_known(found.begin);
      unknown.push_back(decode_utf8(all.data() + found.begin).code);
      next = from = found.end;
    }
    keep_known(all.size());
    for (const char32_t code : unknown) {
      if (code < low_) low_ = code;
      replacements_.emplace_back(code, known[code < 0x10000 ? 0 : 1][static_cast<size_t>(table.category(code))]);
    }
  }

  char32_t replacement(char32_t code) const {
    if (code < low_) return 0;
    const auto at = std::lower_bound(replacements_.begin(), replacements_.end(), std::pair{code, char32_t{0}});
    return at != replacements_.end() && at->first == code ? at->second : 0;
  }

  char32_t low_ = 0x110000;
  std::vector<std::pair<char32_t, char32_t>> replacements_;  // in order
};

}  // namespace

struct Regex::Code {
  CodePointer code;
  std::string where;
  bool substitutes;  // not where the pattern names characters beyond ASCII, which may be those that would be replaced
};

Regex::Regex(std::string_view pattern, std::string where) {
  const std::string translated = pcre2_from_oniguruma(pattern, where);
  int error = 0;
  size_t place = 0;
  CodePointer code = compile(translated, error, place);
  if (!code)
    throw input_error("{}: the pattern {} cannot be followed here: {} (at {} of {})", where, files::shown(pattern, 400),
                      error_text(error), place, files::shown(translated, 400));
  const bool ascii = std::all_of(translated.begin(), translated.end(), [](char c) { return (c & '\x80') == 0; }) &&
                     translated.find(R"(\x{)") == std::string::npos;
  code_ = std::make_unique<Code>(Code{std::move(code), std::move(where), ascii});
}

Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

void Regex::find_all(std::string_view text, std::vector<Range>& out) const {
  if (text.empty()) return;
  thread_local std::string buffer;
  const std::string_view subject = code_->substitutes ? Substitutes::get().apply(text, buffer) : text;
  size_t from = 0, last_end = std::string_view::npos;
  while (from <= subject.size()) {
    const int found = workspace().match(code_->code.get(), subject, from);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0)
      throw run_error("{}: the pattern gives up on a text of {} bytes: {}", code_->where, text.size(),
                      error_text(found));
    const Range range = workspace().range();
    if (range.begin == range.end && range.end == last_end) {
      if (from >= subject.size()) return;
      from += decode_utf8(subject.data() + from).length;
      continue;
    }
    from = last_end = range.end;
    out.push_back(range);
  }
}

}  // namespace strata::data
