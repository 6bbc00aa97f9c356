#include "data/scanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/regex.h"
#include "data/small_tokenizer.h"

namespace strata::data {
namespace {

using testing::ElementsAre;

constexpr const char* gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string gpt4(const std::string& digits) {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + digits +
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::vector<std::string> words(const Scanner& scanner, const std::string& text) {
  std::vector<std::string> all;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const next = scanner.next(at, end);
    if (next <= at || next > end) {
      ADD_FAILURE() << "stuck";
      break;
    }
    all.emplace_back(at, next);
    at = next;
  }
  return all;
}

TEST(Scanner, Gpt2) {
  const Scanner s = Scanner::gpt2();
  EXPECT_THAT(words(s, "I'm can't WE'LL they've  x"),
              ElementsAre("I", "'m", " can", "'t", " WE", "'", "LL", " they", "'ve", " ", " x"));
  EXPECT_THAT(words(s, "''s 12ab,. \n\n c \t"), ElementsAre("''", "s", " 12", "ab", ",.", " \n\n", " c", " \t"));
  EXPECT_THAT(words(s, "\u3000\u3000x"), ElementsAre("\u3000", "\u3000", "x"));
  EXPECT_THAT(words(s, "a' 'r 're"), ElementsAre("a", "'", " '", "r", " '", "re"));
  EXPECT_THAT(words(s, " "), ElementsAre(" "));
  EXPECT_THAT(words(s, "'"), ElementsAre("'"));
  EXPECT_THAT(words(s, "'r"), ElementsAre("'", "r"));
}

TEST(Scanner, Gpt4AndItsKin) {
  const Scanner three = Scanner::of_pattern(gpt4(R"(\p{N}{1,3})")).value();
  EXPECT_THAT(words(three, "We'LL don'\u017Fx 12345 \n\n  !a (x) ...\n\ny"),
              ElementsAre("We", "'LL", " don", "'\u017F", "x", " ", "123", "45", " \n\n", " ", " !", "a", " (", "x",
                          ")", " ...\n\n", "y"));
  EXPECT_THAT(words(three, "\tabc\u3000d\r\ne  "), ElementsAre("\tabc", "\u3000d", "\r\n", "e", "  "));
  EXPECT_THAT(words(three, "!abc '\u017F"), ElementsAre("!abc", " '", "\u017F"));
  const Scanner one = Scanner::of_pattern(gpt4(R"(\p{N})")).value();
  EXPECT_THAT(words(one, "a12\u00BD"), ElementsAre("a", "1", "2", "\u00BD"));
  const Scanner any = Scanner::of_pattern(gpt4(R"(\p{N}+)")).value();
  EXPECT_THAT(words(any, "a12345 6"), ElementsAre("a", "12345", " ", "6"));
}

TEST(Scanner, OnlyTheirOwnPatterns) {
  EXPECT_TRUE(Scanner::of_pattern(gpt2));
  for (const std::string& other : {std::string(), std::string("x"), gpt4(R"(\p{N}{1,2})"), gpt4(R"(\p{Nd})"),
                                   std::string(gpt2) + "|x", std::string(gpt2).substr(1)})
    EXPECT_FALSE(Scanner::of_pattern(other)) << other;
}

// The engine reads the same patterns and must cut the same words.
TEST(Scanner, AgreesWithTheRegularExpression) {
  for (const std::string& pattern : {std::string(gpt2), gpt4(R"(\p{N}{1,3})"), gpt4(R"(\p{N})"), gpt4(R"(\p{N}+)")}) {
    const Scanner scanner = Scanner::of_pattern(pattern).value();
    const Regex regex(pattern, "t");
    for (uint64_t seed = 0; seed < 5000; ++seed) {
      const std::string text = odd_text(seed, true);
      std::vector<Range> ranges;
      regex.find_all(text, ranges);
      std::vector<std::string> expected;
      for (const Range& range : ranges) expected.push_back(text.substr(range.begin, range.end - range.begin));
      ASSERT_EQ(words(scanner, text), expected) << "seed " << seed << ", " << pattern;
    }
  }
}

}  // namespace
}  // namespace strata::data
