#pragma once
// Characters: code points out of UTF-8, their classes, and the normal forms of text. General categories are those of
// Unicode 16.0 and normal forms those of Unicode 9.0: the versions that Hugging Face's tokenizers 0.23 goes by.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// One character, and how many bytes of UTF-8 it takes.
struct Character {
  char32_t code = 0;
  uint32_t length = 0;
};

/// The character at `at`, which must point into valid UTF-8.
inline Character decode_utf8(const char* at) {
  const auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

void append_utf8(char32_t code, std::string& out);

/// Classes of all code points, made once for the whole process.
class CharacterTable {
 public:
  static constexpr size_t size = 0x110000;

  enum Bits : uint8_t {
    category_mask = 0x1F,  ///< general category, as utf8proc numbers them
    space = 0x20,          ///< the property White_Space
    letter = 0x40,         ///< categories L*
    number = 0x80,         ///< categories N*
  };

  static const CharacterTable& get();

  uint8_t bits(char32_t code) const { return bits_[code]; }
  int category(char32_t code) const { return bits_[code] & category_mask; }
  bool is_space(char32_t code) const { return (bits_[code] & space) != 0; }
  bool is_letter(char32_t code) const { return (bits_[code] & letter) != 0; }
  bool is_number(char32_t code) const { return (bits_[code] & number) != 0; }
  /// Categories P*, and all that ASCII calls punctuation.
  bool is_punctuation(char32_t code) const;
  /// What \w matches: Alphabetic, marks, decimal digits, connecting punctuation.
  bool is_word(char32_t code) const;

 private:
  CharacterTable();
  std::vector<uint8_t> bits_;
};

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// Appends `text`, each stretch of valid UTF-8 in normal form; other bytes go through, and so do characters newer than
/// Unicode 9.0, which nothing combines with. Linear in the text's length.
void normalize(NormalForm form, std::string_view text, std::string& out);

}  // namespace strata::data
