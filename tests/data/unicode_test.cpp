#include "data/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include "data/small_tokenizer.h"
#include "data/utf8.h"

namespace strata::data {
namespace {

std::string form(NormalForm which, std::string_view text) {
  std::string out = "|";  // appended, not replaced
  normalize(which, text, out);
  return out.substr(1);
}

// Where utf8proc, of a later Unicode, and normalize differ.
bool newer(char32_t code) {
  const std::string alone = [code] {
    std::string text;
    append_utf8(code, text);
    return text;
  }();
  const auto* const property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  const bool combines = property->combining_class != 0 && form(NormalForm::nfd, "a\u0345" + alone) == "a\u0345" + alone;
  return combines || (property->decomp_seqindex != UINT16_MAX && form(NormalForm::nfkd, alone) == alone);
}

TEST(CharacterTable, KnowsItsClasses) {
  const CharacterTable& table = CharacterTable::get();
  for (const char32_t space : {U' ', U'\n', U'\v', U'\u0085', U'\u00A0', U'\u1680', U'\u2028', U'\u3000'})
    EXPECT_TRUE(table.is_space(space)) << static_cast<uint32_t>(space);
  for (const char32_t none : {U'\u180E', U'\u200B', U'\uFEFF', U'\u001C'}) EXPECT_FALSE(table.is_space(none));
  for (const char32_t letter : {U'a', U'\u00DF', U'\u05D0', U'\u4E00', U'\u02B0', U'\u00AA'})
    EXPECT_TRUE(table.is_letter(letter));
  for (const char32_t number : {U'0', U'\u00B2', U'\u00BD', U'\u0661', U'\u2160', U'\u3007'})
    EXPECT_TRUE(table.is_number(number));
  EXPECT_FALSE(table.is_letter(U'\u0301'));
  EXPECT_FALSE(table.is_letter(U'\u24B6'));
  EXPECT_TRUE(table.is_punctuation(U'$') && table.is_punctuation(U'\u2014') && !table.is_punctuation(U'\u20AC'));
  for (const char32_t word : {U'_', U'\u0301', U'\u24B6', U'\u200D', U'9', U'\u2160', U'\u203F'})
    EXPECT_TRUE(table.is_word(word)) << static_cast<uint32_t>(word);
  for (const char32_t none : {U'-', U'\u00BD', U'\u2603', U' '}) EXPECT_FALSE(table.is_word(none));
  EXPECT_EQ(table.category(0x10FFFF), UTF8PROC_CATEGORY_CN);
}

TEST(CharacterTable, KnowsUnicode16) {
  const CharacterTable& table = CharacterTable::get();
  EXPECT_EQ(table.category(0x1C89), UTF8PROC_CATEGORY_LU);
  EXPECT_EQ(table.category(0x0897), UTF8PROC_CATEGORY_MN);
  EXPECT_EQ(table.category(0x1CCF0), UTF8PROC_CATEGORY_ND);
  EXPECT_EQ(table.category(0x2EBF0), UTF8PROC_CATEGORY_LO);  // 15.1
}

TEST(Normalize, TheFourForms) {
  EXPECT_EQ(form(NormalForm::nfc, "A\u030A \u212B \u1E9B\u0323 \uFB01"), "\u00C5 \u00C5 \u1E9B\u0323 \uFB01");
  EXPECT_EQ(form(NormalForm::nfd, "\u00C5\u1E9B\u0323\uAC01"), "A\u030A\u017F\u0323\u0307\u1100\u1161\u11A8");
  EXPECT_EQ(form(NormalForm::nfkc, "\u1E9B\u0323 \uFB01 \u00B2\u00A0x"), "\u1E69 fi 2 x");
  EXPECT_EQ(form(NormalForm::nfkd, "\u1E9B\u0323\uFB01"), "s\u0323\u0307fi");
  EXPECT_EQ(form(NormalForm::nfc, "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(form(NormalForm::nfc, "\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(form(NormalForm::nfc, "a\u0315\u0300\u05AE\u0062"), "\u00E0\u05AE\u0315b");
  EXPECT_EQ(form(NormalForm::nfc, ""), "");
  EXPECT_EQ(form(NormalForm::nfc, "\u0301 e\u0301"), "\u0301 \u00E9");
}

TEST(Normalize, OtherBytesGoThroughAndPart) {
  EXPECT_EQ(form(NormalForm::nfc, "e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(form(NormalForm::nfc, "\xC3"), "\xC3");
  EXPECT_EQ(form(NormalForm::nfc, "\xE2\x96 e\u0301\x80"), "\xE2\x96 \u00E9\x80");
}

// Combining marks and the like that Unicode got after 9.0: a mark of 7.0 passes one of 6.0 by, one of 14.0 does not.
TEST(Normalize, TheUnicodeOfNormalFormsIs9) {
  EXPECT_EQ(form(NormalForm::nfc, "a\u1AB5\u0301"), "\u00E1\u1AB5");
  EXPECT_EQ(form(NormalForm::nfc, "a\u1ABF\u0301"), "a\u1ABF\u0301");
  EXPECT_EQ(form(NormalForm::nfc, "a\u0301\u1ABFe\u0301\u0897"), "\u00E1\u1ABF\u00E9\u0897");
  EXPECT_EQ(form(NormalForm::nfkc, "\u32FE\u32FF"), "\u30F2\u32FF");
  EXPECT_EQ(form(NormalForm::nfd, "\U00011938"), "\U00011938");
  EXPECT_EQ(form(NormalForm::nfc, "\U00011935\U00011930"), "\U00011935\U00011930");
}

// The library's own function, on the whole text at once.
TEST(Normalize, AgreesWithUtf8proc) {
  const std::pair<NormalForm, int> forms[] = {
      {NormalForm::nfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
      {NormalForm::nfd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
      {NormalForm::nfkc, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
      {NormalForm::nfkd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::string text;
    for (const std::string all = odd_text(seed, true); text.size() < all.size();) {
      const Character character = decode_utf8(all.data() + text.size());
      if (newer(character.code)) break;
      text.append(all, text.size(), character.length);
    }
    for (const auto& [which, options] : forms) {
      utf8proc_uint8_t* whole = nullptr;
      const utf8proc_ssize_t length =
          utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &whole, static_cast<utf8proc_option_t>(options));
      ASSERT_GE(length, 0);
      const std::string expected(reinterpret_cast<const char*>(whole), static_cast<size_t>(length));
      std::free(whole);
      ASSERT_EQ(form(which, text), expected) << "seed " << seed;
    }
  }
}

TEST(Normalize, LongRunsOfMarksAreNoTrap) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  std::string sorted = "\u1EA1";  // a with the first dot below
  for (int i = 1; i < 100'000; ++i) sorted += "\u0323";
  for (int i = 0; i < 100'000; ++i) sorted += "\u0301";
  EXPECT_EQ(form(NormalForm::nfc, text), sorted);
}

TEST(Utf8, BackAndForth) {
  for (char32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 97) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(code, text);
    ASSERT_EQ(valid_utf8_prefix(text), text.size());
    const Character character = decode_utf8(text.data());
    ASSERT_EQ(character.code, code);
    ASSERT_EQ(character.length, text.size());
  }
}

}  // namespace
}  // namespace strata::data
