#include "data/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "data/oniguruma.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<Range> ranges;
  Regex(pattern, "t.json: pattern").find_all(text, ranges);
  std::vector<std::string> all;
  for (const Range& range : ranges) all.push_back(text.substr(range.begin, range.end - range.begin));
  return all;
}

// What follows was checked against Oniguruma itself.
TEST(Regex, ClassesMeanWhatOnigurumaMeans) {
  EXPECT_THAT(matches(R"(\s)", "a\u0085\u180E\u200B\u3000"), ElementsAre("\u0085", "\u3000"));
  EXPECT_THAT(matches(R"([^\S\n]+)", " \n\t"), ElementsAre(" ", "\t"));
  EXPECT_THAT(matches(R"(\h+)", "g0fG-"), ElementsAre("0f"));
  EXPECT_THAT(matches(R"(\v)", "\v\n"), ElementsAre("\v"));
  EXPECT_THAT(matches(R"(\w+)", "a_\u0301\u00BD\u200D-"), ElementsAre("a_\u0301\u00BD"));
  EXPECT_THAT(matches(R"([\w]+)", "a\u00BD"), ElementsAre("a"));
  EXPECT_THAT(matches(R"(\W)", "a\u00BD-"), ElementsAre("-"));
  EXPECT_THAT(matches(R"(\d+)", "12\u0661\u00B2"), ElementsAre("12\u0661"));
  EXPECT_THAT(matches(R"(\p{Han}+|\p{^L}|\P{Letter})", "\u6F22\u30FCa1"), ElementsAre("\u6F22", "1"));
  EXPECT_THAT(matches(R"(\p{Lu}|\p{Uppercase_Letter}|\pN)", "aB3"), ElementsAre("B", "3"));
  EXPECT_THAT(matches(R"(.)", "\n\r"), ElementsAre("\r"));
  EXPECT_THAT(matches(R"(\bthe\b)", "the other the\u0301 _the the"), ElementsAre("the", "the"));
  EXPECT_THAT(matches(R"([\b\x41\u0042\x{43}\-\]])", "ABC-]\b"), ElementsAre("A", "B", "C", "-", "]", "\b"));
}

TEST(Regex, RepetitionAsInOniguruma) {
  EXPECT_THAT(matches(R"(\p{N}{1,3}+)", "1234567 1"), ElementsAre("1234567", "1"));  // not possessive
  EXPECT_THAT(matches(R"((?:ab){2}+x)", "ababababx"), ElementsAre("ababababx"));
  EXPECT_THAT(matches(R"(a++a)", "aaa"), IsEmpty());  // possessive
  EXPECT_THAT(matches(R"([ab]{1,2}*c)", "ababac"), ElementsAre("ababac"));
  EXPECT_THAT(matches(R"(x{,2}y)", "xxxy"), ElementsAre("xxy"));
  EXPECT_THAT(matches(R"(x{|{1)", "x{ {1"), ElementsAre("x{", "{1"));
  EXPECT_THAT(matches(R"(a{1,2}?)", "aa"), ElementsAre("a", "a"));
}

TEST(Regex, LinesAndBrackets) {
  EXPECT_THAT(matches(R"(\s+$)", "a \n b  "), ElementsAre(" ", "  "));  // at the end of any line
  EXPECT_THAT(matches(R"(^\s)", " a\n b"), ElementsAre(" ", " "));
  EXPECT_THAT(matches(R"([a-c[x-z]0]+|[]]|[^(\s|[.,])]+)", "abxz0]("), ElementsAre("abxz0", "]"));
}

TEST(Regex, CaseFolds) {
  EXPECT_THAT(matches(R"((?i:'s|k))", "'S '\u017F \u212A"), ElementsAre("'S", "'\u017F", "\u212A"));
  EXPECT_THAT(matches(R"((?i)ab(?-i:C))", "ABC ABc"), ElementsAre("ABC"));
}

TEST(Regex, EmptyMatchesNeverFollowAMatch) {
  std::vector<Range> ranges;
  Regex("x*", "t").find_all("axxb", ranges);
  std::vector<std::pair<size_t, size_t>> pairs;
  for (const Range& range : ranges) pairs.emplace_back(range.begin, range.end);
  EXPECT_THAT(pairs, ElementsAre(std::pair{0, 0}, std::pair{1, 3}, std::pair{4, 4}));
}

TEST(Regex, LooksBackAcrossMatches) {
  EXPECT_THAT(matches(R"((?<=a)b|a)", "ab"), ElementsAre("a", "b"));
  // The empty match behind the 1 is passed over, and with it a character: so do Oniguruma's Rust bindings.
  EXPECT_THAT(matches(R"((?<=\d)(?=(?:\d{3})+(?!\d))|\d)", "1234"), ElementsAre("1", "3", "4"));
}

TEST(Regex, KnowsCharactersNewerThanTheLibrary) {
  EXPECT_THAT(matches(R"(\p{Lu}\p{Mn})", "\u1C89\u0897"), ElementsAre("\u1C89\u0897"));
  EXPECT_THAT(matches(R"([\p{Lo}]+|\p{Nd})", "\U0002EBF0\U0001CCF0"), ElementsAre("\U0002EBF0", "\U0001CCF0"));
  // Named themselves, they are not taken for others.
  EXPECT_THAT(matches("[\u1C80-\u1C8F]+", "\u1C89"), ElementsAre("\u1C89"));
  EXPECT_THAT(matches(R"(\u1C89)", "\u1C89"), ElementsAre("\u1C89"));
}

TEST(Regex, LongTextsNeedNoDeepStack) {
  const std::string spaces(2'000'000, ' ');
  EXPECT_THAT(matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces + "x"), ElementsAre(spaces.substr(1), " "));
  EXPECT_EQ(matches(R"((?:a|b)+)", std::string(1'000'000, 'a')).size(), 1u);
}

TEST(Regex, RefusesByName) {
  for (const char* pattern : {R"((a)\1)",
                              R"([\W])",
                              R"([a&&b])",
                              R"([[:alpha:]])",
                              R"([a[^b]])",
                              R"((?m:.))",
                              R"(a{2}?)",
                              R"(\X)",
                              R"(\R)",
                              R"(\G)",
                              R"(\xFF)",
                              R"(\x{})",
                              R"(\u12)",
                              R"((?~a))",
                              R"((*FAIL))",
                              "(a",
                              "a)",
                              "[a",
                              "\\",
                              R"(\p{L)",
                              R"(\p{Nonsense})",
                              R"(\p{Xx})",
                              "(?i",
                              "a(?i)b",
                              "\xFF",
                              R"(\K)",
                              R"((?<n>a)\k<n>)",
                              "*a",
                              R"((?<=a+)b)"})
    EXPECT_THAT(message_of(Fault::input, [&] { Regex(pattern, "t.json: pre_tokenizer.pattern.Regex"); }),
                AllOf(HasSubstr("t.json: pre_tokenizer.pattern.Regex: the pattern"), HasSubstr("cannot be followed")))
        << pattern;
}

TEST(Regex, FromSeveralThreads) {
  const Regex regex(R"(\p{L}+|\s+)", "t");
  std::vector<size_t> counts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < counts.size(); ++i)
    threads.emplace_back([&, i] {
      std::vector<Range> ranges;
      for (int round = 0; round < 100; ++round) regex.find_all("some words in a line", ranges);
      counts[i] = ranges.size();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(counts, testing::Each(900u));
}

}  // namespace
}  // namespace strata::data
