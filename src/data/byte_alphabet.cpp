#include "data/byte_alphabet.h"

#include <array>
#include <utility>

#include "data/unicode.h"

namespace strata::data {

namespace {

constexpr char32_t first_made_up = 0x100;

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, first_made_up + 256> bytes{};  // of each code point; -1: none

  Alphabet() {
    bytes.fill(-1);
    char32_t made_up = first_made_up;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const char32_t code = prints ? byte : made_up++;
      append_utf8(code, characters[byte]);
      bytes[code] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet one;
  return one;
}

}  // namespace

std::string_view byte_character(unsigned char byte) { return alphabet().characters[byte]; }

void append_byte_characters(std::string_view bytes, std::string& out) {
  const Alphabet& all = alphabet();
  for (const char c : bytes) out += all.characters[static_cast<unsigned char>(c)];
}

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  append_byte_characters(bytes, text);
  return text;
}

bool append_bytes(std::string_view text, std::string& out) {
  const Alphabet& all = alphabet();
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text.data() + at);
    const int byte = character.code < all.bytes.size() ? all.bytes[character.code] : -1;
    if (byte < 0) return false;
    out.push_back(static_cast<char>(byte));
    at += character.length;
  }
  return true;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  return append_bytes(text, bytes) ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace strata::data
