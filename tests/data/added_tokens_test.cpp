#include "data/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::data {
namespace {

using testing::ElementsAre;

std::vector<std::pair<std::string, int>> parts(const AddedTokenFinder& finder, const std::string& text) {
  std::vector<AddedTokenFinder::Part> found;
  finder.split(text, found);
  std::vector<std::pair<std::string, int>> all;
  for (const auto& part : found) all.emplace_back(text.substr(part.begin, part.end - part.begin), part.id);
  return all;
}

AddedTokenFinder finder(const std::vector<AddedToken>& tokens) {
  AddedTokenFinder all;
  for (const AddedToken& token : tokens) all.add(token, token.content);
  return all;
}

using Parts = std::vector<std::pair<std::string, int>>;

TEST(AddedTokens, TheLongestFromTheLeft) {
  const AddedTokenFinder f =
      finder({{"ab", 1}, {"abcd", 2}, {"bc", 3}, {"  ", 4}, {"   ", 5}, {"z", 6}, {"\u6F22", 7}});
  EXPECT_EQ(parts(f, "xabcdy"), (Parts{{"x", -1}, {"abcd", 2}, {"y", -1}}));
  EXPECT_EQ(parts(f, "abcx"), (Parts{{"ab", 1}, {"cx", -1}}));
  EXPECT_EQ(parts(f, "a     b"), (Parts{{"a", -1}, {"   ", 5}, {"  ", 4}, {"b", -1}}));
  EXPECT_EQ(parts(f, "z"), (Parts{{"z", 6}}));
  EXPECT_EQ(parts(f, "zz\u6F22\xE6\xBC"), (Parts{{"z", 6}, {"z", 6}, {"\u6F22", 7}, {"\xE6\xBC", -1}}));
  EXPECT_EQ(parts(f, ""), Parts{});
  EXPECT_EQ(parts(f, "a"), (Parts{{"a", -1}}));
  EXPECT_EQ(parts(AddedTokenFinder(), "abc"), (Parts{{"abc", -1}}));
  EXPECT_EQ(parts(finder({{"", 9}}), "abc"), (Parts{{"abc", -1}}));
}

TEST(AddedTokens, SingleWords) {
  const AddedTokenFinder f = finder({{.content = "cat", .id = 1, .single_word = true}});
  EXPECT_EQ(parts(f, "cat"), (Parts{{"cat", 1}}));
  EXPECT_EQ(parts(f, "a cat!"), (Parts{{"a ", -1}, {"cat", 1}, {"!", -1}}));
  for (const char* text : {"cats", "_cat", "9cat", "cat\u0301", "\u00E9cat", "catcat", "\u24B6cat", "cat\u200D"})
    EXPECT_EQ(parts(f, text), (Parts{{text, -1}})) << text;
  EXPECT_EQ(parts(f,
                  "\xFF"
                  "cat\xFF"),
            (Parts{{"\xFF", -1}, {"cat", 1}, {"\xFF", -1}}));
  EXPECT_EQ(parts(f, "\u00BDcat"), (Parts{{"\u00BD", -1}, {"cat", 1}}));
}

TEST(AddedTokens, TakeSpaceAlong) {
  const AddedTokenFinder f = finder({{.content = "<l>", .id = 1, .lstrip = true},
                                     {.content = "<r>", .id = 2, .rstrip = true},
                                     {.content = "<b>", .id = 3, .lstrip = true, .rstrip = true}});
  EXPECT_EQ(parts(f, "a \n\u3000<l> b"), (Parts{{"a", -1}, {" \n\u3000<l>", 1}, {" b", -1}}));
  EXPECT_EQ(parts(f, "a <r> \t\u00A0b"), (Parts{{"a ", -1}, {"<r> \t\u00A0", 2}, {"b", -1}}));
  EXPECT_EQ(parts(f, "<r>  <l>"), (Parts{{"<r>  ", 2}, {"<l>", 1}}));  // the first has taken the space
  EXPECT_EQ(parts(f, " <b> "), (Parts{{" <b> ", 3}}));
  EXPECT_EQ(parts(f, "\xFF <l>"), (Parts{{"\xFF", -1}, {" <l>", 1}}));
  EXPECT_EQ(parts(f, "\u200B<l>"), (Parts{{"\u200B", -1}, {"<l>", 1}}));  // not White_Space
}

}  // namespace
}  // namespace strata::data
