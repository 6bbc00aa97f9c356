#include "data/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LineReader, GivesLinesWithTheirNumbersFromAnyPlace) {
  const TempFolder folder;
  const auto file = folder.write("a.jsonl", "\xef\xbb\xbfone\r\n\n  \t\ntwo\n\nthree and no end");
  for (const size_t block : {size_t{1}, size_t{4}, size_t{1000}}) {
    std::vector<std::pair<std::string, int64_t>> all;
    std::vector<LinePlace> places;
    LineReader reader(ByteSource::open(file), {}, block);
    for (LineReader::Line line; reader.next(line);) {
      all.emplace_back(line.text, line.number);
      places.push_back(reader.place());
    }
    ASSERT_THAT(all, ElementsAre(std::pair("one\r", 1), std::pair("two", 4), std::pair("three and no end", 6)));
    for (size_t i = 0; i < places.size(); ++i) {
      LineReader rest(ByteSource::open(file), places[i], block);
      size_t at = i + 1;
      for (LineReader::Line line; rest.next(line); ++at) {
        EXPECT_EQ(line.text, all.at(at).first);
        EXPECT_EQ(line.number, all.at(at).second);
      }
      EXPECT_EQ(at, all.size());
    }
  }
}

std::string text_of(std::string_view line, std::string_view key = "text") { return json_text(line, key, "f.jsonl", 7); }

TEST(JsonText, PicksTheKeyAndResolvesEscapes) {
  EXPECT_EQ(text_of(R"({"text": "plain"})"), "plain");
  EXPECT_EQ(text_of("  {\"text\": \"\"}\r"), "");
  EXPECT_EQ(text_of(R"({"id": 3, "meta": {"text": "inner", "l": [{"text": 1}]}, "text": "outer", "n": null})"),
            "outer");
  EXPECT_EQ(text_of(R"({"text": "a\n\t\"\\\/\b\f\r\u0041\u00e9\u20ac"})"), "a\n\t\"\\/\b\f\rA\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(text_of(R"({"text": "\ud83d\ude00"})"), "\xf0\x9f\x98\x80");  // a surrogate pair
  EXPECT_EQ(text_of(R"({"text": "a\u0000b"})"), std::string("a\0b", 3));
  EXPECT_EQ(text_of("{\"text\": \"\xf0\x9f\x98\x80\"}"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(text_of(R"({"content": "c", "text": "t"})", "content"), "c");
  EXPECT_EQ(text_of(R"({"te\u0078t": "escaped key"})"), "escaped key");
  // Deeper than any stack would like.
  EXPECT_EQ(text_of("{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + ", \"text\": \"t\"}"), "t");
}

TEST(JsonText, NamesFileLineAndWhatIsWrong) {
  const auto refused = [](std::string_view line) {
    const std::string message = message_of(Fault::input, [&] { text_of(line); });
    EXPECT_THAT(message, StartsWith("f.jsonl:7: "));
    return message;
  };
  for (const char* line : {"{\"text\": \"cut", "{\"text\": \"a\"", "{\"text\" \"a\"}", "{text: \"a\"}", "plain words",
                           "{\"text\": \"a\"} {\"text\": \"b\"}", "{\"text\": \"a\",}", "{\"text\": 'a'}"})
    EXPECT_THAT(refused(line), HasSubstr("not JSON: column ")) << line;
  EXPECT_THAT(refused("{\"text\": \"a\" \"b\"}"), HasSubstr("column 16"));
  // Half a surrogate pair, whichever half, and bytes that are no UTF-8.
  for (const char* line :
       {R"({"text": "\ud83d"})", R"({"text": "\ud83dx"})", R"({"text": "\ud83d\u0041"})", R"({"text": "\ude00"})",
        "{\"text\": \"caf\xe9\"}", "{\"text\": \"\xed\xa0\xbd\"}", "{\"text\": \"tab\there\"}"})
    EXPECT_THAT(refused(line), HasSubstr("not JSON")) << line;
  EXPECT_THAT(refused(R"({"id": 1})"), AllOf(HasSubstr("no key \"text\""), HasSubstr("--json-key")));
  EXPECT_THAT(refused("{}"), HasSubstr("no key"));
  EXPECT_THAT(refused(R"({"text": 3})"), HasSubstr("holds a number, not a string"));
  EXPECT_THAT(refused(R"({"text": 3.5})"), HasSubstr("holds a number"));
  EXPECT_THAT(refused(R"({"text": null})"), HasSubstr("holds null"));
  EXPECT_THAT(refused(R"({"text": true})"), HasSubstr("truth value"));
  EXPECT_THAT(refused(R"({"text": ["a"]})"), HasSubstr("holds a list"));
  EXPECT_THAT(refused(R"({"text": {"a": "b"}})"), HasSubstr("holds an object"));
  EXPECT_THAT(refused(R"({"text": "a", "text": "b"})"), HasSubstr("there twice"));
  EXPECT_THAT(refused(R"(["text"])"), AllOf(HasSubstr("a list"), HasSubstr("an object a line")));
  EXPECT_THAT(refused("\"text\""), HasSubstr("holds a string, not an object"));
  EXPECT_THAT(refused("12"), HasSubstr("holds a number, not an object"));
}

}  // namespace
}  // namespace strata::data
