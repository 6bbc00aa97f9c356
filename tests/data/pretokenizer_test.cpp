#include "data/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/small_tokenizer.h"

namespace strata::data {
namespace {

using testing::ElementsAre;

using Pieces = std::vector<std::string>;

Pieces cut(const PreTokenizer& pretokenizer, std::string_view text) {
  Pieces pieces;
  pretokenizer.cut(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

Step plain_bytes() { return {Step::ByteLevel{.add_prefix_space = false, .use_regex = false}}; }

PreTokenizer split_by(const std::string& pattern, SplitBehavior behavior, bool invert = false) {
  std::vector<Step> steps;
  steps.push_back({Step::Pattern{Regex(pattern, "t"), behavior, invert}});
  steps.push_back(plain_bytes());
  return PreTokenizer(std::move(steps));
}

// The five behaviors on the example that the library's documentation gives, and inverted.
TEST(PreTokenizer, Behaviors) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(cut(split_by("-", SplitBehavior::removed), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(cut(split_by("-", SplitBehavior::isolated), text),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(cut(split_by("-", SplitBehavior::merged_with_previous), text),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(cut(split_by("-", SplitBehavior::merged_with_next), text),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(cut(split_by("-", SplitBehavior::contiguous), text), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(cut(split_by("[a-z]+", SplitBehavior::removed, true), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(cut(split_by("[a-z]+", SplitBehavior::contiguous, true), text),
              ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(cut(split_by("-", SplitBehavior::merged_with_previous), "-a-"), ElementsAre("-", "a-"));
  EXPECT_THAT(cut(split_by("-", SplitBehavior::merged_with_next), "-a-"), ElementsAre("-a", "-"));
  EXPECT_THAT(cut(split_by("-", SplitBehavior::removed), "--"), ElementsAre());
  EXPECT_THAT(cut(split_by("x*", SplitBehavior::isolated), "axb"), ElementsAre("a", "x", "b"));
  EXPECT_THAT(cut(split_by("", SplitBehavior::isolated), "abc"), ElementsAre("a", "b", "c"));
}

TEST(PreTokenizer, ByteLevelAlone) {
  std::vector<Step> steps;
  steps.push_back({Step::ByteLevel{.add_prefix_space = false, .use_regex = true}});
  EXPECT_THAT(cut(PreTokenizer(std::move(steps)), "Hello  caf\u00E9's\n"),
              ElementsAre("Hello", " ", " caf\u00E9", "'s", "\n"));
}

TEST(PreTokenizer, APrefixSpaceForEveryPieceThatHasNone) {
  std::vector<Step> steps;
  steps.push_back({Step::ByteLevel{.add_prefix_space = true, .use_regex = true}});
  const PreTokenizer alone(std::move(steps));
  EXPECT_THAT(cut(alone, "a b"), ElementsAre(" a", " b"));
  EXPECT_THAT(cut(alone, " a"), ElementsAre(" a"));
  EXPECT_THAT(cut(alone, "\na"), ElementsAre(" ", "\n", "a"));
  EXPECT_THAT(cut(alone, ""), ElementsAre());
  EXPECT_FALSE(alone.lossless());

  std::vector<Step> after_split;
  after_split.push_back({Step::Digits{.individual = true}});
  after_split.push_back({Step::ByteLevel{.add_prefix_space = true, .use_regex = true}});
  EXPECT_THAT(cut(PreTokenizer(std::move(after_split)), "a12 b"), ElementsAre(" a", " 1", " 2", " b"));
}

TEST(PreTokenizer, Digits) {
  for (const bool individual : {true, false}) {
    std::vector<Step> steps;
    steps.push_back({Step::Digits{.individual = individual}});
    steps.push_back({Step::ByteLevel{.add_prefix_space = false, .use_regex = true}});
    const PreTokenizer digits(std::move(steps));
    // A space before a number stands alone: the number is a piece of its own before words are cut.
    if (individual)
      EXPECT_THAT(cut(digits, "in 1984\u00BD!"), ElementsAre("in", " ", "1", "9", "8", "4", "\u00BD", "!"));
    else
      EXPECT_THAT(cut(digits, "in 1984\u00BD!"), ElementsAre("in", " ", "1984\u00BD", "!"));
    EXPECT_TRUE(digits.lossless());
  }
}

TEST(PreTokenizer, LookaheadEndsWithThePiece) {
  std::vector<Step> steps;
  steps.push_back({Step::Pattern{Regex("[0-9]", "t"), SplitBehavior::isolated, false}});
  steps.push_back({Step::ByteLevel{.add_prefix_space = false, .use_regex = true}});
  EXPECT_THAT(cut(PreTokenizer(std::move(steps)), "a   1"), ElementsAre("a", "   ", "1"));
}

// Steps behind ByteLevel see the characters that stand for bytes: 0xB2 is then a number, 0xC3 a letter.
TEST(PreTokenizer, StepsBehindByteLevel) {
  std::vector<Step> steps;
  steps.push_back({Step::Punctuation{SplitBehavior::contiguous}});
  steps.push_back({Step::ByteLevel{.add_prefix_space = false, .use_regex = true}});
  steps.push_back({Step::Digits{.individual = false}});
  steps.push_back({Step::Pattern{Regex("[0-9][0-9][0-9]", "t"), SplitBehavior::isolated, false}});
  const PreTokenizer falcon(std::move(steps));
  EXPECT_THAT(cut(falcon, "Hi, 12345 x!!"), ElementsAre("Hi", ",", " ", "123", "45", " x", "!!"));
  EXPECT_THAT(cut(falcon, "x\u00F2y\u0172"), ElementsAre("x\xC3", "\xB2", "y\xC5", "\xB2"));
  EXPECT_TRUE(falcon.lossless());
}

TEST(PreTokenizer, AScannerCutsAsItsPatternInAnyBehaviorThatLosesNothing) {
  const std::string pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  for (const auto& [behavior, invert] :
       {std::pair{SplitBehavior::isolated, false}, std::pair{SplitBehavior::removed, true},
        std::pair{SplitBehavior::contiguous, false}, std::pair{SplitBehavior::merged_with_next, false}}) {
    std::vector<Step> steps;
    steps.push_back({Step::Pattern{Scanner::of_pattern(pattern).value(), behavior, invert}});
    steps.push_back(plain_bytes());
    const PreTokenizer by_scanner(std::move(steps));
    const PreTokenizer by_regex = split_by(pattern, behavior, invert);
    EXPECT_EQ(by_scanner.lossless(), true);
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const std::string text = odd_text(seed, true);
      ASSERT_EQ(cut(by_scanner, text), cut(by_regex, text)) << seed;
    }
  }
  EXPECT_FALSE(split_by(pattern, SplitBehavior::removed, true).lossless());  // not known of any expression
}

}  // namespace
}  // namespace strata::data
