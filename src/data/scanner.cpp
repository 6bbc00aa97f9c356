#include "data/scanner.h"

#include <string>

#include "data/unicode.h"

namespace strata::data {

namespace {

// A character with its class; `kind` 0 is neither space nor letter nor number.
struct Seen {
  char32_t code;
  uint32_t length;
  uint8_t kind;
};

constexpr uint8_t kinds = CharacterTable::space | CharacterTable::letter | CharacterTable::number;

inline Seen see(const CharacterTable& table, const char* at) {
  const Character character = decode_utf8(at);
  return {character.code, character.length, static_cast<uint8_t>(table.bits(character.code) & kinds)};
}

inline const char* skip(const CharacterTable& table, uint8_t kind, const char* at, const char* end) {
  while (at < end) {
    const Seen seen = see(table, at);
    if (seen.kind != kind) break;
    at += seen.length;
  }
  return at;
}

inline bool line_end(char c) { return c == '\n' || c == '\r'; }

// \s+(?!\S)|\s+ where a space begins: all spaces up to the end of the text; else all but the last one, which belongs to
// what follows; else that one.
inline const char* spaces(const CharacterTable& table, const char* at, const char* end) {
  const char* last = at;
  const char* after = at;
  while (after < end) {
    const Seen seen = see(table, after);
    if (seen.kind != CharacterTable::space) return last > at ? last : after;
    last = after;
    after += seen.length;
  }
  return after;
}

// 's|'t|'re|'ve|'m|'ll|'d behind the apostrophe; 0 if it is none of them.
inline size_t contraction(const char* at, const char* end, bool any_case) {
  const size_t left = static_cast<size_t>(end - at);
  if (left < 2) return 0;
  const auto letter = [&](size_t i) -> char {
    return any_case && at[i] >= 'A' && at[i] <= 'Z' ? static_cast<char>(at[i] | 0x20) : at[i];
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (left < 3) return 0;
  if (any_case && at[1] == '\xC5' && at[2] == '\xBF') return 3;  // U+017F, the long s, is an s in any case
  const char second = letter(2);
  return (second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l') ? 3 : 0;
}

}  // namespace

Scanner::Scanner(int digits) : table_(&CharacterTable::get()), digits_(digits) {}

Scanner Scanner::gpt2() { return Scanner(-1); }

std::optional<Scanner> Scanner::of_pattern(std::string_view pattern) {
  if (pattern == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") return gpt2();
  static constexpr std::string_view before = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  static constexpr std::string_view after = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (!pattern.starts_with(before)) return std::nullopt;
  pattern.remove_prefix(before.size());
  if (!pattern.ends_with(after)) return std::nullopt;
  pattern.remove_suffix(after.size());
  if (pattern == R"(\p{N}{1,3})") return Scanner(3);
  if (pattern == R"(\p{N})") return Scanner(1);
  if (pattern == R"(\p{N}+)") return Scanner(0);
  return std::nullopt;
}

const char* Scanner::gpt2_word(const char* at, const char* end) const {
  const CharacterTable& table = *table_;
  if (*at == '\'')
    if (const size_t length = contraction(at, end, false)) return at + length;
  const char* word = at;
  if (*word == ' ' && word + 1 < end) ++word;
  const Seen first = see(table, word);
  if (first.kind == CharacterTable::space) return spaces(table, at, end);
  return skip(table, first.kind, word + first.length, end);
}

const char* Scanner::gpt4_word(const char* at, const char* end) const {
  const CharacterTable& table = *table_;
  if (*at == '\'')
    if (const size_t length = contraction(at, end, true)) return at + length;
  const Seen first = see(table, at);
  const char* const second = at + first.length;
  if (first.kind == CharacterTable::letter) return skip(table, first.kind, second, end);
  if (first.kind == CharacterTable::number) {
    const char* after = second;
    for (int digits = 1; after < end && (digits_ == 0 || digits < digits_); ++digits) {
      const Seen next = see(table, after);
      if (next.kind != CharacterTable::number) break;
      after += next.length;
    }
    return after;
  }
  // One character of any other kind may stand before letters, a space before signs.
  const uint8_t follows = second < end ? see(table, second).kind : uint8_t{CharacterTable::space};
  if (follows == CharacterTable::letter && !line_end(*at)) return skip(table, follows, second, end);
  if (first.kind == 0 || (*at == ' ' && follows == 0)) {
    const char* after = skip(table, 0, second, end);
    while (after < end && line_end(*after)) ++after;
    return after;
  }
  const char* const after = skip(table, CharacterTable::space, second, end);
  for (const char* last = after; last > at; --last)
    if (line_end(last[-1])) return last;
  return spaces(table, at, end);
}

}  // namespace strata::data
