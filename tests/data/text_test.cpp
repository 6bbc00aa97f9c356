#include "data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Bytes at hand as a source, given out a few at a time.
class Bytes final : public ByteSource {
 public:
  explicit Bytes(std::string text) : ByteSource("bytes"), text_(std::move(text)) {}
  size_t read(std::span<char> out) override {
    const size_t count = std::min(out.size(), text_.size() - at_);
    text_.copy(out.data(), count, at_);
    at_ += count;
    return count;
  }
  int64_t stored_bytes() const override { return static_cast<int64_t>(at_); }
  bool compressed() const override { return false; }

 private:
  std::string text_;
  size_t at_ = 0;
};

// Documents, pieces joined by '|'.
std::vector<std::string> documents(const std::vector<std::filesystem::path>& files, DocumentRule rule,
                                   int64_t piece_bytes = 1 << 20) {
  std::vector<std::string> all;
  std::string document;
  for (const auto& file : files) {
    TextReader reader(ByteSource::open(file), rule, piece_bytes);
    for (TextReader::Piece piece; reader.next(piece);) {
      document += piece.text;
      if (!piece.last) {
        document += '|';
        continue;
      }
      all.push_back(document);
      document.clear();
    }
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
  TextReader reader(std::make_unique<Bytes>("\f \n\fone\f\f two \f\n\n"), DocumentRule::form_feed, 64);
  TextReader::Piece piece;
  ASSERT_TRUE(reader.next(piece));
  EXPECT_EQ(piece.text, "one");
  EXPECT_EQ(piece.offset, 4);
  ASSERT_TRUE(reader.next(piece));
  EXPECT_EQ(piece.text, " two");
  EXPECT_EQ(piece.offset, 9);
  EXPECT_FALSE(reader.next(piece));
  EXPECT_EQ(reader.empty_documents(), 3);
  EXPECT_EQ(reader.source().stored_bytes(), 17);
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
    TextReader reader(ByteSource::open(file), DocumentRule::form_feed, piece_bytes);
    std::string joined;
    int pieces = 0;
    for (TextReader::Piece piece; reader.next(piece); ++pieces) {
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

// Whatever was read at a time and wherever reading is taken up again, the same pieces come.
TEST(TextReader, GoesOnFromAnyPieceTheSame) {
  const std::string_view letters[] = {"a",  "bc ",          " ",    "\n",   "\n\n",     "\f",
                                      "\t", "\xe2\x82\xac", "word", "\r\n", "         "};
  struct Seen {
    std::string text;
    int64_t offset;
    bool last;
    bool operator==(const Seen&) const = default;
  };
  for (uint64_t round = 0; round < 60; ++round) {
    std::string text = round % 3 == 0 ? "\xef\xbb\xbf" : "";
    for (uint64_t i = 0; i < 400; ++i) text += letters[philox(round, i)[0] % 11];
    const auto rule = static_cast<DocumentRule>(round % 3);
    const auto read = [&](TextPlace from, size_t block, std::vector<TextPlace>* places, int64_t* empty) {
      TextReader reader(std::make_unique<Bytes>(text), rule, 24, from, block);
      std::vector<Seen> all;
      for (TextReader::Piece piece; reader.next(piece);) {
        all.push_back({std::string(piece.text), piece.offset, piece.last});
        if (places != nullptr) places->push_back(reader.place());
      }
      if (empty != nullptr) *empty = reader.empty_documents();
      return all;
    };
    std::vector<TextPlace> places;
    int64_t empty = 0;
    const std::vector<Seen> whole = read({}, 1 << 16, &places, &empty);
    ASSERT_FALSE(whole.empty());
    for (const size_t block : {1, 2, 7, 33, 301}) {
      int64_t again = 0;
      ASSERT_EQ(read({}, block, nullptr, &again), whole) << round << " " << block;
      ASSERT_EQ(again, empty);
    }
    for (size_t i = 0; i < places.size(); ++i)
      ASSERT_EQ(read(places[i], 1 + i % 50, nullptr, nullptr),
                std::vector<Seen>(whole.begin() + static_cast<ptrdiff_t>(i) + 1, whole.end()))
          << round << " " << i;
  }
}

TEST(TextReader, RefusesShortPieces) {
  EXPECT_THAT(message_of(Fault::input, [] { TextReader(std::make_unique<Bytes>(""), DocumentRule::line, 15); }),
              HasSubstr("at least 16"));
}

}  // namespace
}  // namespace strata::data
