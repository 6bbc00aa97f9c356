#include "files/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/scratch.h"

namespace strata::files {
namespace {

using test::error_of;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string error_in(std::string_view text) {
  return error_of([&] { parse_json(text, "f.json"); });
}

TEST(Json, ReadsEveryKindOfValue) {
  const nlohmann::json json = parse_json(
      R"( {"a": [1, -2, 3.5, 1e3], "b": {"c": "t\u00e9\n", "d": {}}, "e": [], "f": [true, false, null], "g": [[{"h": 1}]]} )",
      "f.json");
  EXPECT_EQ(json,
            nlohmann::json::parse(
                R"({"a":[1,-2,3.5,1000.0],"b":{"c":"té\n","d":{}},"e":[],"f":[true,false,null],"g":[[{"h":1}]]})"));
  EXPECT_TRUE(json["a"][0].is_number_unsigned());
  EXPECT_TRUE(json["a"][3].is_number_float());
}

TEST(Json, ReadsATopLevelScalar) {
  EXPECT_EQ(parse_json("17", "f.json"), 17);
  EXPECT_EQ(parse_json(" \"x\"", "f.json"), "x");
}

TEST(Json, KeepsLargeWholeNumbers) {
  EXPECT_EQ(parse_json("[9223372036854775807]", "f")[0].get<int64_t>(), INT64_MAX);
  EXPECT_EQ(parse_json("[18446744073709551615]", "f")[0].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(parse_json("[-9223372036854775808]", "f")[0].get<int64_t>(), INT64_MIN);
}

TEST(Json, RefusesDuplicateKeysAtEveryDepth) {
  EXPECT_THAT(error_in("{\"a\": 1,\n \"a\": 2}"), StartsWith("f.json:2:4: key \"a\" is given twice"));
  EXPECT_THAT(error_in(R"({"x": [{"y": {"a": 1, "b": 2, "a": 3}}]})"),
              StartsWith("f.json:1:33: key \"a\" is given twice"));
  EXPECT_THAT(error_in(R"({"a": {"b": 1}, "a": {}})"), HasSubstr("key \"a\" is given twice"));
  EXPECT_THAT(error_in(R"({"a": null, "a": null})"), HasSubstr("twice"));
  EXPECT_THAT(error_in(R"({"a": 1, "\u0061": 2})"), HasSubstr("key \"a\" is given twice"));
  EXPECT_EQ(parse_json(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]})", "f")["b"].size(), 2u);
}

TEST(Json, TellsWhereSyntaxBreaks) {
  EXPECT_THAT(error_in("{\n  \"a\": 1,\n  \"b\" 2\n}"), StartsWith("f.json:3:7: not valid JSON: "));
  EXPECT_THAT(error_in(""), StartsWith("f.json:1:1: not valid JSON: "));
  EXPECT_THAT(error_in("{\"a\": 1"), StartsWith("f.json:1:"));
  for (const char* text :
       {"{\"a\": 1,}", "[1 2]",   "{} {}",   "[1]x",    "{'a': 1}", "[NaN]",        "[Infinity]",
        "[01]",        "[1.]",    "nul",     "\"\t\"",  "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
        "\"\\ud800\"", "\"\\x\"", "[1e999]", "// c\n1", "\x01",     "{\"a\": 1",    "[",
        "\"a"})
    EXPECT_THAT(error_in(text), HasSubstr("not valid JSON")) << text;
  // A NUL byte is no end of text.
  EXPECT_THAT(error_in(std::string("[1]\0", 4)), StartsWith("f.json:1:4: not valid JSON: a NUL byte"));
  EXPECT_THAT(error_in(std::string("{\n}\0{\"a\": 1}", 12)), StartsWith("f.json:2:2: not valid JSON: a NUL byte"));
}

TEST(Json, KeepsMessagesShortAndPrintable) {
  std::string hostile = "[\"" + std::string(100000, 'x') + "\x1b[31m\"]";
  const std::string message = error_in(hostile);
  EXPECT_THAT(message, SizeIs(Lt(400u)));
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
}

TEST(Json, LimitsDepth) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  parse_json(nested(64), "f.json");
  EXPECT_THAT(error_in(nested(65)), StartsWith("f.json:1:65: nested deeper than 64 levels"));
  EXPECT_THAT(error_in(nested(1000000)), HasSubstr("nested deeper"));
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_in(objects), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of([] { parse_json("[[[]]]", "f", 2); }), HasSubstr("nested deeper than 2 levels"));
}

TEST(Json, ReadsFiles) {
  test::Scratch scratch;
  test::spill(scratch / "x.json", "{\"a\": 1}");
  EXPECT_EQ(read_json((scratch / "x.json").string())["a"], 1);
  test::spill(scratch / "x.json", "{");
  EXPECT_THAT(error_of([&] { read_json((scratch / "x.json").string()); }), HasSubstr("x.json:1:1: not valid JSON"));
  EXPECT_THAT(error_of([&] { read_json((scratch / "y.json").string()); }), HasSubstr("y.json: cannot open"));
}

TEST(Shown, EscapesAndCuts) {
  EXPECT_EQ(shown("plain.weight"), "\"plain.weight\"");
  EXPECT_EQ(shown(""), "\"\"");
  EXPECT_EQ(shown("a\"b\\c\n\x7f"), "\"a\\\"b\\\\c\\x0a\\x7f\"");
  EXPECT_EQ(shown("h\u00e9 \u20ac \U0001F600"), "\"h\u00e9 \u20ac \U0001F600\"");
  EXPECT_EQ(shown("\xc3("), "\"\\xc3(\"");                           // cut short
  EXPECT_EQ(shown("\xe2\x82"), "\"\\xe2\\x82\"");                    // ends inside a character
  EXPECT_EQ(shown("\xc0\x80"), "\"\\xc0\\x80\"");                    // overlong
  EXPECT_EQ(shown("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");           // surrogate
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), "\"\\xf4\\x90\\x80\\x80\"");  // past U+10FFFF
  EXPECT_EQ(shown("abcdef", 3), "\"abc...\"");
  EXPECT_EQ(shown_json(nlohmann::json("x\n")), "\"x\\x0a\"");
  EXPECT_EQ(shown_json(nlohmann::json(2.5)), "2.5");
  EXPECT_EQ(shown_json(nlohmann::json::array({1})), "a list");
  EXPECT_EQ(shown_json(nlohmann::json::object()), "an object");
  EXPECT_EQ(shown_json(nlohmann::json()), "null");
}

}  // namespace
}  // namespace strata::files
