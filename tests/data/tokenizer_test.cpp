#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <set>

#include "core/random.h"
#include "data/sentencepiece.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

// Enough words for a small vocabulary: every combination of some syllables, as sentences.
std::string made_up_text() {
  static constexpr const char* syllables[] = {"ba", "ren", "til", "os", "ka", "mi", "sun", "der", "lo", "ph"};
  std::string text;
  for (uint64_t i = 0; i < 4000; ++i) {
    const Random4 r = philox(11, i);
    for (uint32_t s = 0; s < 1 + r[0] % 3; ++s) text += syllables[(r[1] >> (4 * s)) % 10];
    text += r[2] % 9 == 0 ? ", 17 caf\xc3\xa9s.\n" : r[2] % 5 == 0 ? "  " : " ";
  }
  return text;
}

class Trained : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    const std::vector<std::filesystem::path> texts = {folder_->write("text.txt", made_up_text())};
    model_ = train_sentencepiece(texts, {.vocab = 500});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    return ids;
  }
  static inline TempFolder* folder_ = nullptr;
  static inline std::string model_;
};

TEST(ByteTokenizer, IsTheBytesAndAnEnd) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_TRUE(tokenizer->exact());
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  std::vector<int32_t> ids = {7};
  tokenizer->encode(all, ids);
  ASSERT_EQ(ids.size(), 257u);
  EXPECT_EQ(ids[0], 7);  // appended, not replaced
  EXPECT_EQ(ids[256], 255);
  ids.erase(ids.begin());
  ids.push_back(256);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_THAT(message_of(Fault::input, [&] { tokenizer->decode(std::vector<int32_t>{257}); }),
              ::testing::HasSubstr("257"));
  EXPECT_THAT(message_of(Fault::input, [&] { tokenizer->decode(std::vector<int32_t>{-1}); }),
              ::testing::HasSubstr("-1"));
}

TEST_F(Trained, GivesAnyTextBack) {
  const auto tokenizer = load_sentencepiece(model_, "m");
  EXPECT_TRUE(tokenizer->exact());
  EXPECT_EQ(tokenizer->vocab(), 500);
  EXPECT_EQ(tokenizer->end_of_document(), 1);
  EXPECT_EQ(tokenizer->description(), "SentencePiece BPE, 500 ids");
  for (const std::string& text : std::vector<std::string>{"",
                                                          " ",
                                                          "   ",
                                                          "\n",
                                                          "a",
                                                          " a",
                                                          "a ",
                                                          "  ren  til ",
                                                          "\n\n\tbaren\r\n",
                                                          "17 caf\xc3\xa9s",
                                                          "2024",
                                                          "caf\xcc\xa9",
                                                          "\xef\xac\x81\xe2\x91\xa0",
                                                          "</s><unk><0x0A><s>",
                                                          std::string("nul\0l", 5),
                                                          "\xf0\x9f\x98\x80",
                                                          "\xe2\x96\x81",
                                                          " \xe2\x96\x81 \xe2\x96\x81\xe2\x96\x81",
                                                          "\xe2\x96\x85",
                                                          "\xc2\xa0\xe3\x80\x80",
                                                          "bad \xff\xfe\x80 bytes \xe2\x96",
                                                          "\xed\xa0\x80",
                                                          std::string(5000, 'x'),
                                                          made_up_text()})
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text) << text.substr(0, 40);
}

TEST_F(Trained, GivesEveryCharacterBack) {
  const auto tokenizer = load_sentencepiece(model_, "m");
  std::string text;
  const auto put = [&](uint32_t c) {
    if (c < 0x80) {
      text.push_back(static_cast<char>(c));
    } else if (c < 0x800) {
      text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
               static_cast<char>(0x80 | (c & 63))};
    } else {
      text += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
               static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
  };
  // All of the first plane, and every seventh of the others.
  for (uint32_t c = 0; c < 0x110000; c += c < 0x10000 ? 1 : 7) {
    if (c >= 0xD800 && c < 0xE000) continue;
    put(c);
    if (text.size() < 4096) continue;
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text) << c;
    text.clear();
  }
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
}

TEST_F(Trained, GivesRandomBytesBack) {
  const auto tokenizer = load_sentencepiece(model_, "m");
  for (uint64_t round = 0; round < 300; ++round) {
    std::string text;
    for (uint64_t i = 0; i < 10; ++i)
      for (const uint32_t word : philox(round, i)) text += {static_cast<char>(word), static_cast<char>(word >> 8)};
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text) << round;
  }
}

TEST_F(Trained, AgreesWithTheLibraryWordByWord) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model_).ok());
  const auto tokenizer = load_sentencepiece(model_, "m");
  const std::string text = made_up_text();
  std::vector<int> expected;
  ASSERT_TRUE(library.Encode(text, &expected).ok());
  EXPECT_EQ(encode(*tokenizer, text), expected);
  EXPECT_EQ(encode(*tokenizer, text), expected);  // now from the words kept
  std::set<int> used(expected.begin(), expected.end());
  EXPECT_GT(used.size(), 50u);  // pieces, not letters
  EXPECT_LT(expected.size() * 2, text.size());
}

TEST_F(Trained, DecodesPartsToTheParts) {
  const auto tokenizer = load_sentencepiece(model_, "m");
  const std::string text = "  baren caf\xc3\xa9 \xf0\x9f\x98\x80 sunder";
  std::string joined;
  for (const int32_t id : encode(*tokenizer, text)) joined += tokenizer->decode(std::vector<int32_t>{id});
  EXPECT_EQ(joined, text);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 1}), "");
  EXPECT_THAT(
      message_of(Fault::input, [&] { tokenizer->decode(std::vector<int32_t>{500}); }),
      ::testing::AllOf(::testing::HasSubstr("500"), ::testing::HasSubstr("m:"), ::testing::HasSubstr("0 to 499")));
}

TEST_F(Trained, SameInputSameModelAndTheSeedChoosesTheSample) {
  const std::vector<std::filesystem::path> texts = {*folder_ / "text.txt"};
  EXPECT_EQ(train_sentencepiece(texts, {.vocab = 500}), model_);
  const auto sampled = [&](uint64_t seed) {
    return train_sentencepiece(texts, {.vocab = 350, .sample_bytes = 4000, .seed = seed});
  };
  EXPECT_EQ(sampled(1), sampled(1));
  EXPECT_NE(sampled(1), sampled(2));
}

TEST_F(Trained, SaysHowLargeAVocabularyMayBe) {
  const std::vector<std::filesystem::path> texts = {
      folder_->write("short.txt", "only a few words here, and no more than that\n")};
  EXPECT_THAT(message_of(Fault::input, [&] { train_sentencepiece(texts, {.vocab = 4000}); }),
              ::testing::AllOf(::testing::HasSubstr("4000"), ::testing::ContainsRegex("at most [0-9]+"),
                               ::testing::HasSubstr("smaller vocabulary")));
  EXPECT_THAT(message_of(Fault::input, [&] { train_sentencepiece(texts, {.vocab = 100}); }),
              ::testing::HasSubstr("at least 300"));
  std::string letters;  // 100 different ones do not fit 300 ids
  for (int i = 0; i < 50; ++i)
    for (int c = 0; c < 100; ++c) letters += {static_cast<char>(0xC4 + c / 64), static_cast<char>(0x80 + c % 64), ' '};
  const std::vector<std::filesystem::path> many = {folder_->write("letters.txt", letters)};
  EXPECT_THAT(message_of(Fault::input, [&] { train_sentencepiece(many, {.vocab = 300}); }),
              ::testing::AllOf(::testing::HasSubstr("letters"), ::testing::ContainsRegex("at least [0-9]+")));
}

TEST_F(Trained, RefusesEmptyAndMissingText) {
  const std::vector<std::filesystem::path> blank = {folder_->write("blank.txt", " \n\n\f\n")};
  EXPECT_THAT(message_of(Fault::input, [&] { train_sentencepiece(blank, {.vocab = 500}); }),
              ::testing::HasSubstr("blank.txt"));
  const std::vector<std::filesystem::path> missing = {*folder_ / "missing.txt"};
  EXPECT_THAT(message_of(Fault::input, [&] { train_sentencepiece(missing, {.vocab = 500}); }),
              ::testing::AllOf(::testing::HasSubstr("missing.txt"), ::testing::HasSubstr("No such file")));
}

TEST_F(Trained, LoadsFromAFileAndFromAFolder) {
  folder_->write("tokenizer.model", model_);
  EXPECT_EQ(load_tokenizer(*folder_ / "tokenizer.model")->vocab(), 500);
  EXPECT_EQ(load_tokenizer(*folder_ / "")->vocab(), 500);
}

TEST_F(Trained, RefusesDamagedModels) {
  const std::string path = folder_->write("damaged.model", "").string();
  for (const std::string& content :
       {std::string(), std::string("hello"), std::string(1000, '\xff'), model_.substr(0, model_.size() / 2)})
    EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder_->write("damaged.model", content)); }),
                ::testing::HasSubstr(path + ": not a SentencePiece model"));
}

// A model as others train them: normalising, with a space put in front, without an end of document.
TEST(ForeignSentencePiece, DoesWhatTheLibraryDoes) {
  const TempFolder folder;
  const auto text_file = folder.write("text.txt", made_up_text());
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"input", text_file.string()}, {"vocab_size", "200"}, {"eos_id", "-1"}, {"bos_id", "-1"}, {"minloglevel", "2"}},
      nullptr, &model);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto tokenizer = load_tokenizer(folder.write("foreign.model", model));
  EXPECT_FALSE(tokenizer->exact());
  EXPECT_EQ(tokenizer->vocab(), 200);
  EXPECT_EQ(tokenizer->end_of_document(), std::nullopt);
  EXPECT_EQ(tokenizer->description(), "SentencePiece unigram, 200 ids");
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  for (const std::string& text : {std::string("baren  til"), std::string(" \xef\xac\x81 sun"), made_up_text()}) {
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    EXPECT_EQ(ids, library.EncodeAsIds(text));
    EXPECT_EQ(tokenizer->decode(ids), library.DecodeIds(ids));
  }
  std::vector<int32_t> ids;
  EXPECT_THAT(message_of(Fault::input, [&] { tokenizer->encode("\xff", ids); }),
              ::testing::AllOf(::testing::HasSubstr("foreign.model"), ::testing::HasSubstr("UTF-8")));
  EXPECT_THAT(message_of(Fault::input, [&] { tokenizer->decode(std::vector<int32_t>{200}); }),
              ::testing::HasSubstr("0 to 199"));
}

TEST(LoadTokenizer, SaysWhatItLookedFor) {
  const TempFolder folder;
  EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder / ""); }),
              ::testing::AllOf(::testing::HasSubstr("tokenizer.json"), ::testing::HasSubstr("vocab.json"),
                               ::testing::HasSubstr("tokenizer.model")));
  EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder / "none.model"); }),
              ::testing::HasSubstr("none.model"));
  EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder.write("m", "#version: 0.2\na b\n")); }),
              ::testing::HasSubstr("merges.txt"));
  EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder.write("config.json", R"({"layers": {}})")); }),
              ::testing::AllOf(::testing::HasSubstr("config.json"), ::testing::HasSubstr("not a tokenizer")));
}

}  // namespace
}  // namespace strata::data
