#include "data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Documents, pieces joined by '|'.
std::vector<std::string> documents(const std::vector<std::filesystem::path>& files, DocumentRule rule,
                                   int64_t piece_bytes = 1 << 20) {
  std::vector<std::string> all;
  TextReader reader(files, rule, piece_bytes);
  std::string document;
  for (Piece piece; reader.next(piece);) {
    document += piece.text;
    if (!piece.last) {
      document += '|';
      continue;
    }
    all.push_back(document);
    document.clear();
  }
  EXPECT_EQ(document, "");
  return all;
}

TEST(TextReader, SplitsByItsRule) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> files = {
      folder.write("a.txt", "one\ntwo\n\n  three \t\n \n\n\nfour\n\f\nfive\n\f\n"), folder.write("b.txt", "\n\n six")};
  EXPECT_THAT(documents(files, DocumentRule::form_feed),
              ElementsAre("one\ntwo\n\n  three \t\n \n\n\nfour", "five", " six"));
  EXPECT_THAT(documents(files, DocumentRule::blank_line), ElementsAre("one\ntwo", "  three", "four\n\f\nfive", " six"));
  EXPECT_THAT(documents(files, DocumentRule::line), ElementsAre("one", "two", "  three", "four", "five", " six"));
}

TEST(TextReader, TakesWindowsLineEndsAndAByteOrderMark) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> files = {folder.write("a.txt", "\xef\xbb\xbfone\r\ntwo\r\n\r\nthree\r\n")};
  EXPECT_THAT(documents(files, DocumentRule::blank_line), ElementsAre("one\r\ntwo", "three"));
}

TEST(TextReader, SkipsEmptyDocumentsAndCountsThem) {
  const TempFolder folder;
  TextReader reader({folder.write("a.txt", "\f \n\fone\f\f two \f\n\n")}, DocumentRule::form_feed, 64);
  Piece piece;
  ASSERT_TRUE(reader.next(piece));
  EXPECT_EQ(piece.text, "one");
  EXPECT_EQ(piece.offset, 4);
  ASSERT_TRUE(reader.next(piece));
  EXPECT_EQ(piece.text, " two");
  EXPECT_EQ(piece.offset, 9);
  EXPECT_FALSE(reader.next(piece));
  EXPECT_EQ(reader.empty_documents(), 3);
  EXPECT_EQ(reader.bytes_read(), 17);
}

TEST(TextReader, CutsLongDocumentsWhereTheyHurtLeast) {
  const TempFolder folder;
  const auto pieces = [&](const std::string& text) {
    return documents({folder.write("a.txt", text)}, DocumentRule::form_feed, 16);
  };
  EXPECT_THAT(pieces("0123456789\n\nabc\ndef ghi"), ElementsAre("0123456789\n\n|abc\ndef ghi"));
  EXPECT_THAT(pieces("0123456789\nabc def ghi"), ElementsAre("0123456789\n|abc def ghi"));
  EXPECT_THAT(pieces("0123456789 abc def ghi"), ElementsAre("0123456789 abc| def ghi"));
  EXPECT_THAT(pieces("0123456789abcdefghi"), ElementsAre("0123456789abcdef|ghi"));
  EXPECT_THAT(pieces("0123456789abcde\xe2\x82\xac"
                     "ghi"),
              ElementsAre("0123456789abcde|\xe2\x82\xac"
                          "ghi"));
  EXPECT_THAT(pieces("0123456789abcdef"), ElementsAre("0123456789abcdef"));
}

TEST(TextReader, PiecesJoinToTheTextAcrossReadingBlocks) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200000; ++i)
    text += "word " + std::to_string(i) + (i % 1000 == 999 ? "\n\n" : i % 10 == 9 ? "\n" : " ");
  text.pop_back();
  text.pop_back();
  const auto file = folder.write("a.txt", text);
  for (const int64_t piece_bytes : {1000, 4096, 300000, 4000000}) {
    TextReader reader({file}, DocumentRule::form_feed, piece_bytes);
    std::string joined;
    int pieces = 0;
    for (Piece piece; reader.next(piece); ++pieces) {
      ASSERT_LE(static_cast<int64_t>(piece.text.size()), piece_bytes);
      ASSERT_EQ(piece.offset, static_cast<int64_t>(joined.size()));
      joined += piece.text;
    }
    ASSERT_TRUE(joined == text) << piece_bytes;
    ASSERT_GE(pieces, static_cast<int64_t>(text.size()) / piece_bytes);
  }
  // Separators that lie across the blocks' borders.
  const auto whole = documents({file}, DocumentRule::blank_line);
  EXPECT_EQ(whole.size(), 200u);
  std::string joined = whole[0];
  for (size_t i = 1; i < whole.size(); ++i) joined += "\n\n" + whole[i];
  EXPECT_TRUE(joined == text);
}

TEST(TextReader, RefusesWhatIsNotPlainText) {
  const TempFolder folder;
  const auto message = [&](const std::string& name, std::string_view content) {
    return message_of(Fault::input, [&] { documents({folder.write(name, content)}, DocumentRule::form_feed); });
  };
  EXPECT_THAT(message("a.gz", "\x1f\x8b\x08rest"), ::testing::AllOf(HasSubstr("a.gz"), HasSubstr("gzip")));
  EXPECT_THAT(message("a.zst", "\x28\xb5\x2f\xfd rest"), HasSubstr("zstd"));
  EXPECT_THAT(message("a.bz2", "BZh91AY"), HasSubstr("bzip2"));
  EXPECT_THAT(message("a.xz",
                      "\xfd"
                      "7zXZ rest"),
              HasSubstr("xz"));
  EXPECT_THAT(message("a.txt", std::string("\xff\xfeh\0", 4)), HasSubstr("UTF-16"));
  EXPECT_THAT(message("a.jsonl", "{\"text\": \"x\"}\n"), HasSubstr("JSON"));
  EXPECT_THAT(message("a.idx", std::string("MMIDIDX\0\0", 9)), HasSubstr("index"));
  EXPECT_THAT(message_of(Fault::input, [&] { documents({folder / "none.txt"}, DocumentRule::line); }),
              ::testing::AllOf(HasSubstr("none.txt"), HasSubstr("No such file")));
  EXPECT_THAT(message_of(Fault::input, [&] { documents({folder / ""}, DocumentRule::line); }), HasSubstr("folder"));
}

}  // namespace
}  // namespace strata::data
