#include "data/utf8.h"

#include <gtest/gtest.h>

namespace strata::data {
namespace {

TEST(Utf8, EndsBeforeTheFirstBadByte) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  EXPECT_EQ(valid_utf8_prefix("plain"), 5u);
  EXPECT_EQ(valid_utf8_prefix("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 9u);
  EXPECT_EQ(valid_utf8_prefix("ab\xff"
                              "cd"),
            2u);
  EXPECT_EQ(valid_utf8_prefix("ab\x80"), 2u);       // a continuation byte alone
  EXPECT_EQ(valid_utf8_prefix("ab\xe2\x82"), 2u);   // cut short
  EXPECT_EQ(valid_utf8_prefix("ab\xe2\x82z"), 2u);  // broken off
  EXPECT_EQ(valid_utf8_prefix("\xc0\xaf"), 0u);     // long forms
  EXPECT_EQ(valid_utf8_prefix("\xe0\x80\xaf"), 0u);
  EXPECT_EQ(valid_utf8_prefix("\xf0\x80\x80\xaf"), 0u);
  EXPECT_EQ(valid_utf8_prefix("\xed\xa0\x80"), 0u);      // a surrogate
  EXPECT_EQ(valid_utf8_prefix("\xf4\x90\x80\x80"), 0u);  // past U+10FFFF
  EXPECT_EQ(valid_utf8_prefix("\xf4\x8f\xbf\xbf"), 4u);
}

}  // namespace
}  // namespace strata::data
