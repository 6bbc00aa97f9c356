#include "data/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/small_tokenizer.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Merges some = {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "w"}, {"\xC3", "x"}};

std::string refusal(const json& changed) {
  return message_of(Fault::input, [&] { load(changed); });
}

TEST(TokenizerJson, EncodesAndDecodes) {
  const auto tokenizer = load(small_tokenizer(some));
  EXPECT_EQ(tokenizer->vocab(), 262);
  EXPECT_TRUE(tokenizer->exact());
  EXPECT_TRUE(tokenizer->any_bytes());
  EXPECT_EQ(tokenizer->description(), "byte-level BPE, 262 ids");
  EXPECT_EQ(tokenizer->end_of_document(), std::nullopt);
  EXPECT_THAT(tokens(*tokenizer, "hello world"), ElementsAre("hello", " w", "o", "r", "l", "d"));
  EXPECT_THAT(encode(*tokenizer, "he\n"), ElementsAre(256, '\n'));
  EXPECT_THAT(message_of(Fault::input, [&] { tokenizer->decode(std::vector<int32_t>{262}); }),
              AllOf(HasSubstr("262"), HasSubstr("t.json"), HasSubstr("0 to 261")));
  EXPECT_THAT(message_of(Fault::input, [&] { tokenizer->decode(std::vector<int32_t>{-1}); }), HasSubstr("-1"));
}

TEST(TokenizerJson, MergesAsTextAreTheSame) {
  json as_text = small_tokenizer(some);
  json list = json::array({"#version: 0.2"});
  for (const json& pair : as_text["model"]["merges"])
    list.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  as_text["model"]["merges"] = list;
  EXPECT_EQ(encode(*load(as_text), "hello world"), encode(*load(small_tokenizer(some)), "hello world"));
  as_text["model"].erase("type");  // files of old have none
  EXPECT_EQ(load(as_text)->vocab(), 262);
}

TEST(TokenizerJson, IgnoreMerges) {
  json whole = small_tokenizer(some);
  whole["model"]["vocab"]["world"] = 300;
  whole["model"]["vocab"]["w\u010Ax"] = 301;  // U+010A stands for the line end
  EXPECT_THAT(tokens(*load(whole), "world"), ElementsAre("w", "o", "r", "l", "d"));
  whole["model"]["ignore_merges"] = true;
  const auto tokenizer = load(whole);
  EXPECT_THAT(encode(*tokenizer, "world"), ElementsAre(300));
  EXPECT_THAT(tokens(*tokenizer, " world"), ElementsAre(" w", "o", "r", "l", "d"));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{301}), "w\nx");
}

TEST(TokenizerJson, HolesHaveNoText) {
  json holes = small_tokenizer();
  holes["model"]["vocab"]["xyz"] = 1000;
  const auto tokenizer = load(holes);
  EXPECT_EQ(tokenizer->vocab(), 1001);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{'a', 500, 'b', 1000}), "abxyz");
  EXPECT_TRUE(tokenizer->exact());
}

TEST(TokenizerJson, AddedTokensStandForThemselves) {
  json with = small_tokenizer(some);
  with["added_tokens"] = {added(262, "<|endoftext|>"), added(263, "<|end|>"), added(264, "   "),
                          added(265, "<m>", {{"lstrip", true}})};
  const auto tokenizer = load(with);
  EXPECT_EQ(tokenizer->vocab(), 266);
  EXPECT_EQ(tokenizer->end_of_document(), 262);
  EXPECT_THAT(encode(*tokenizer, "<|endoftext|>he<|end|><|en"), ElementsAre(262, 256, 263, '<', '|', 'e', 'n'));
  EXPECT_THAT(encode(*tokenizer, "a    b"), ElementsAre('a', 264, ' ', 'b'));
  EXPECT_THAT(encode(*tokenizer, "a <m>b"), ElementsAre('a', 265, 'b'));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{262, 265}), "<|endoftext|><m>");
  EXPECT_FALSE(tokenizer->exact());  // the space before <m> is lost
  EXPECT_TRUE(tokenizer->any_bytes());
  with["added_tokens"].erase(3);
  EXPECT_TRUE(load(with)->exact());
}

TEST(TokenizerJson, AddedTokensInTheVocabularyKeepItsId) {
  json with = small_tokenizer();
  with["model"]["vocab"]["</s>"] = 300;  // behind a hole, as GPT-4's are
  with["added_tokens"] = {added(300, "</s>"), added(257, "<x>")};
  const auto tokenizer = load(with);
  EXPECT_THAT(encode(*tokenizer, "</s><x>"), ElementsAre(300, 257));
  EXPECT_EQ(tokenizer->end_of_document(), 300);
  EXPECT_TRUE(tokenizer->exact());
}

TEST(TokenizerJson, NormalisedTokensAreFoundInNormalisedText) {
  json with = small_tokenizer();
  with["normalizer"] = {{"type", "NFC"}};
  with["added_tokens"] = {added(256, "\u212Bb", {{"normalized", true}, {"special", false}}),
                          added(257, "\u212Bc", {{"normalized", false}})};
  const auto tokenizer = load(with);
  EXPECT_THAT(encode(*tokenizer, "A\u030Ab"), ElementsAre(256));
  EXPECT_THAT(encode(*tokenizer, "\u00C5b"), ElementsAre(256));
  EXPECT_THAT(encode(*tokenizer, "\u212Bc"), ElementsAre(257));
  EXPECT_THAT(encode(*tokenizer, "\u00C5c"), ElementsAre(0xC3, 0x85, 'c'));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{256}), "\u212Bb");
  EXPECT_FALSE(tokenizer->exact());
  // Found as written first: what is between them is normalised for itself.
  EXPECT_EQ(encode(*tokenizer, "e\u212Bc\u0301"), (std::vector<int32_t>{'e', 257, 0xCC, 0x81}));
}

TEST(TokenizerJson, Normalizers) {
  json with = small_tokenizer();
  with["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFD"}}, {{"type", "NFKC"}}}}};
  const auto tokenizer = load(with);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "e\u0301\uFB01")), "\u00E9fi");
  EXPECT_TRUE(tokenizer->any_bytes());
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "e\u0301\xFF")), "\u00E9\xFF");
  with["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  EXPECT_TRUE(load(with)->exact());
}

TEST(TokenizerJson, UnknownBytes) {
  json without = small_tokenizer();
  without["model"]["vocab"].erase("\u00FF");  // no text has it
  const auto text_only = load(without);
  EXPECT_FALSE(text_only->any_bytes());
  EXPECT_FALSE(text_only->exact());
  EXPECT_EQ(text_only->decode(encode(*text_only, "caf\u00E9")), "caf\u00E9");
  std::vector<int32_t> ids;
  EXPECT_THAT(message_of(Fault::input, [&] { text_only->encode("\xFF", ids); }),
              AllOf(HasSubstr("t.json"), HasSubstr("UTF-8")));
  without["model"]["vocab"].erase("x");
  EXPECT_THAT(refusal(without),
              AllOf(HasSubstr("t.json: model.vocab"), HasSubstr("1 of the 256 bytes"), HasSubstr("78")));
  without["model"]["unk_token"] = "<unk>";
  EXPECT_THAT(refusal(without), AllOf(HasSubstr("unk_token"), HasSubstr("<unk>")));
  without["model"]["vocab"]["<unk>"] = 400;
  EXPECT_THAT(encode(*load(without), "axx"), ElementsAre('a', 400, 400));
  without["model"]["fuse_unk"] = true;
  EXPECT_THAT(encode(*load(without), "axxb"), ElementsAre('a', 400, 'b'));
  without["model"]["byte_fallback"] = true;
  EXPECT_THAT(refusal(without), HasSubstr("model.byte_fallback"));
}

TEST(TokenizerJson, InvalidBytesArePiecesOfTheirOwn) {
  const auto tokenizer = load(small_tokenizer({{"a", "\xFF"}, {"\xFF", "\xFE"}, {" ", "a"}, {"\xFE", "b"}}));
  EXPECT_THAT(tokens(*tokenizer,
                     " a\xFF\xFE"
                     "b"),
              ElementsAre(" a", "\xFF\xFE", "b"));
}

// A pure function of bytes, whatever they are and whatever tokens the text spells out.
TEST(TokenizerJson, GivesRandomBytesBack) {
  json with = small_tokenizer(some);
  with["added_tokens"] = {added(262, "'s"), added(263, "\u0301"), added(264, "  "),
                          added(265, "<x", {{"normalized", true}})};
  const std::string gpt4 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::vector<json> pretokenizers = {
      byte_level(), sequence({split(gpt4), byte_level(false)}),
      sequence({split(R"(\p{Lu}?\p{Ll}+|\s{1,2})", "MergedWithNext"), byte_level(false)}),
      sequence({{{"type", "Digits"}, {"individual_digits", true}}, byte_level()}),
      sequence({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                byte_level(),
                {{"type", "Digits"}, {"individual_digits", false}},
                split("[0-9][0-9][0-9]")})};
  for (const json& pretokenizer : pretokenizers) {
    with["pre_tokenizer"] = pretokenizer;
    const auto tokenizer = load(with);
    ASSERT_TRUE(tokenizer->exact());
    for (uint64_t seed = 0; seed < 1500; ++seed) {
      const std::string text = odd_text(seed, seed % 3 == 0);
      const std::vector<int32_t> ids = encode(*tokenizer, text);
      ASSERT_EQ(tokenizer->decode(ids), text) << "seed " << seed << ", " << pretokenizer;
      std::string joined;
      for (const int32_t id : ids) joined += tokenizer->decode(std::span(&id, 1));
      ASSERT_EQ(joined, text);
    }
  }
}

TEST(TokenizerJson, WhatTheNormaliserLeavesAloneComesBack) {
  json with = small_tokenizer(some);
  with["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = load(with);
  int unchanged = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string text = odd_text(seed, false);
    std::string normal;
    normalize(NormalForm::nfc, text, normal);
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), normal) << seed;
    unchanged += normal == text;
  }
  EXPECT_GT(unchanged, 100);
}

TEST(TokenizerJson, DocumentsEndByTheFirstKnownName) {
  json with = small_tokenizer();
  with["model"]["vocab"]["<|endoftext|>"] = 256;
  with["model"]["vocab"]["</s>"] = 257;
  EXPECT_EQ(load(with)->end_of_document(), 256);
  with["added_tokens"] = json::array({added(257, "</s>")});  // an added one comes before any in the vocabulary
  EXPECT_EQ(load(with)->end_of_document(), 257);
  with["added_tokens"].push_back(added(258, "<|end_of_text|>"));
  EXPECT_EQ(load(with)->end_of_document(), 258);
}

// --- What does not fit together, or is not supported.

TEST(TokenizerJson, RefusesForeignAndDamagedFiles) {
  const std::string whole = small_tokenizer(some).dump();
  for (const double share : {0.0, 0.01, 0.3, 0.7, 0.999})
    EXPECT_THAT(message_of(Fault::input,
                           [&] {
                             read_tokenizer_json(
                                 whole.substr(0, static_cast<size_t>(share * static_cast<double>(whole.size()))),
                                 "t.json");
                           }),
                AllOf(HasSubstr("t.json"), HasSubstr("not valid JSON")));
  for (const char* text : {"{}", "[]", "3", R"({"model": 3})", R"({"hidden_size": 4})"})
    EXPECT_THAT(message_of(Fault::input, [&] { read_tokenizer_json(text, "t.json"); }), HasSubstr("t.json")) << text;
  json changed = small_tokenizer();
  changed["version"] = "2.0";
  EXPECT_THAT(refusal(changed), AllOf(HasSubstr("version"), HasSubstr("2.0")));
}

TEST(TokenizerJson, RefusesOtherModelsByName) {
  for (const char* type : {"WordPiece", "WordLevel", "Unigram"}) {
    json changed = small_tokenizer();
    changed["model"]["type"] = type;
    EXPECT_THAT(refusal(changed), AllOf(HasSubstr("t.json: model.type"), HasSubstr(type)));
  }
  for (const char* key : {"vocab", "merges"}) {
    json changed = small_tokenizer();
    changed["model"].erase(key);
    EXPECT_THAT(refusal(changed), HasSubstr(std::string("model.") + key));
    changed["model"][key] = 3;
    EXPECT_THAT(refusal(changed), HasSubstr(std::string("model.") + key));
  }
  json changed = small_tokenizer();
  changed["model"]["dropout"] = 0.1;
  EXPECT_THAT(refusal(changed), HasSubstr("model.dropout"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    changed = small_tokenizer();
    changed["model"][key] = "";
    EXPECT_NE(load(changed), nullptr);
    changed["model"][key] = "##";
    EXPECT_THAT(refusal(changed), AllOf(HasSubstr(key), HasSubstr("##")));
  }
}

TEST(TokenizerJson, RefusesMergesThatDoNotFit) {
  const auto refused = [](const json& merge, const std::string& part) {
    json changed = small_tokenizer(some);
    changed["model"]["merges"].push_back(merge);
    EXPECT_THAT(refusal(changed), AllOf(HasSubstr("t.json: model.merges[6]"), HasSubstr(part))) << merge;
  };
  refused({"he", "zzz"}, "takes \"zzz\"");
  refused({"zzz", "he"}, "takes \"zzz\"");
  refused({"he", "x"}, "makes \"hex\"");
  refused("hex", "space between");
  refused("h e x", "space between");
  refused({"h"}, "a merge is");
  refused(3, "a merge is");
}

TEST(TokenizerJson, RefusesIdsThatDoNotFit) {
  json changed = small_tokenizer();
  changed["model"]["vocab"]["xx"] = 'a';
  EXPECT_THAT(refusal(changed), AllOf(HasSubstr("t.json: model.vocab"), HasSubstr("same id, 97"), HasSubstr("\"xx\"")));
  for (const json& id : {json(-1), json(1.5), json("3"), json(int64_t{1} << 40), json(UINT64_MAX), json(nullptr)}) {
    changed["model"]["vocab"]["xx"] = id;
    EXPECT_THAT(refusal(changed), AllOf(HasSubstr("t.json: model.vocab"), HasSubstr("\"xx\""))) << id;
  }
  changed["model"]["vocab"] = json::object();
  EXPECT_THAT(refusal(changed), HasSubstr("no tokens"));
  const std::string twice = R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})";
  EXPECT_THAT(message_of(Fault::input, [&] { read_tokenizer_json(twice, "t.json"); }), HasSubstr("given twice"));
}

TEST(TokenizerJson, RefusesAddedTokensThatDoNotFit) {
  const auto refused = [](const json& tokens, const std::string& part) {
    json changed = small_tokenizer();
    changed["model"]["vocab"]["</s>"] = 256;
    changed["added_tokens"] = tokens;
    EXPECT_THAT(refusal(changed), AllOf(HasSubstr("t.json: added_tokens"), HasSubstr(part))) << tokens;
  };
  refused(json::array({added(300, "</s>")}), "in model.vocab it is 256");
  refused(json::array({added(258, "<x>")}), "is 257");
  refused({added(258, "<y>"), added(257, "<x>")}, "is 257");
  refused(json::array({{{"id", 257}}}), "content");
  refused(json::array({{{"content", "x"}}}), "id");
  refused(json::array({added(257, "<x>", {{"lstrip", 1}})}), "lstrip");
  refused(json::array({3}), "an object is expected");
  refused(3, "a list is expected");
  json holes = small_tokenizer();
  holes["model"]["vocab"]["</s>"] = 257;  // 257 tokens: the next one would be 257 as well
  holes["added_tokens"] = json::array({added(257, "<x>")});
  EXPECT_THAT(refusal(holes), AllOf(HasSubstr("<x>"), HasSubstr("</s>"), HasSubstr("same id, 257")));
}

TEST(TokenizerJson, RefusesUnsupportedSteps) {
  const auto refused = [](const std::string& key, const json& value, const std::string& part) {
    json changed = small_tokenizer();
    changed[key] = value;
    EXPECT_THAT(refusal(changed), AllOf(HasSubstr("t.json: " + key), HasSubstr(part))) << value;
  };
  refused("normalizer", {{"type", "Lowercase"}}, "Lowercase");
  refused("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}},
          "normalizers[1]: the normalizer \"Strip\"");
  refused("normalizer", 3, "an object is expected");
  refused("pre_tokenizer", nullptr, "no ByteLevel");
  refused("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}}, "Metaspace");
  refused("pre_tokenizer", sequence({{{"type", "Whitespace"}}, byte_level()}),
          "pretokenizers[0]: the pre-tokenizer \"Whitespace\"");
  refused("pre_tokenizer", sequence({split("x")}), "no ByteLevel");
  refused("pre_tokenizer", sequence({byte_level(), byte_level()}), "a second ByteLevel");
  refused("pre_tokenizer", sequence({split("(a"), byte_level()}), "pretokenizers[0].pattern.Regex: the pattern \"(a\"");
  refused("pre_tokenizer", sequence({split("a", "Sideways"), byte_level()}), "Sideways");
  refused("pre_tokenizer",
          sequence({{{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"String", ""}}}}, byte_level()}),
          "empty pattern");
  refused("pre_tokenizer", sequence({{{"type", "Split"}, {"behavior", "Isolated"}}, byte_level()}), "Regex");
  refused("pre_tokenizer", {{"type", "ByteLevel"}, {"use_regex", "yes"}}, "use_regex");
}

TEST(TokenizerJson, ByteLevelAddsASpaceUnlessToldNotTo) {
  json with = small_tokenizer();
  with["pre_tokenizer"] = {{"type", "ByteLevel"}};
  EXPECT_THAT(encode(*load(with), "a b"), ElementsAre(' ', 'a', ' ', 'b'));
  with["added_tokens"] = json::array({added(256, "<x>")});
  EXPECT_THAT(encode(*load(with), "a<x>b"), ElementsAre(' ', 'a', 256, ' ', 'b'));
  EXPECT_FALSE(load(with)->exact());
}

TEST(TokenizerJson, SplitByText) {
  json with = small_tokenizer({{".", "*"}, {"a", "."}});
  with["pre_tokenizer"] =
      sequence({{{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"String", ".*"}}}}, byte_level(false)});
  EXPECT_THAT(tokens(*load(with), "a.*xa.b"), ElementsAre("a", ".*", "x", "a.", "b"));
}

// --- GPT-2's two files.

class TwoFiles : public testing::Test {
 protected:
  void SetUp() override {
    json model = small_model(some);
    folder_.write("vocab.json", model["vocab"].dump());
    std::string merges = "#version: 0.2\n";
    for (const json& pair : model["merges"])
      merges += pair[0].get<std::string>() + " " + pair[1].get<std::string>() + "\n";
    merges_ = merges;
    folder_.write("merges.txt", merges);
  }
  TempFolder folder_;
  std::string merges_;
};

TEST_F(TwoFiles, AreFoundByEitherAndByTheFolder) {
  const std::vector<int32_t> expected = encode(*load(small_tokenizer(some)), "hello world");
  for (const char* name : {"vocab.json", "merges.txt", ""})
    EXPECT_EQ(encode(*load_tokenizer(folder_ / name), "hello world"), expected) << name;
  std::filesystem::rename(folder_ / "vocab.json", folder_ / "gpt2-vocab.json");
  EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder_ / ""); }), HasSubstr("vocab.json"));
  std::filesystem::rename(folder_ / "merges.txt", folder_ / "gpt2-merges.txt");
  for (const char* name : {"gpt2-vocab.json", "gpt2-merges.txt"})
    EXPECT_EQ(encode(*load_tokenizer(folder_ / name), "hello world"), expected) << name;
}

TEST_F(TwoFiles, AVocabularyAloneIsNotEnough) {
  std::filesystem::remove(folder_ / "merges.txt");
  for (const char* name : {"vocab.json", ""})
    EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder_ / name); }),
                AllOf(HasSubstr("vocab.json"), HasSubstr("merges.txt is not there")));
}

TEST_F(TwoFiles, LinesThatAreNoMerge) {
  const auto refused = [&](const std::string& merges, const std::string& part) {
    folder_.write("merges.txt", merges);
    EXPECT_THAT(message_of(Fault::input, [&] { load_tokenizer(folder_ / ""); }), HasSubstr(part)) << merges;
  };
  refused(merges_ + "h e x\n", "merges.txt:8: \"h e x\"");
  refused("h e\n\nl l\n", "merges.txt:2");
  refused("h z\n", "merges.txt:1: the merge of \"h\" and \"z\" makes \"hz\"");
  refused("h \xFF\n", "not valid UTF-8");
  folder_.write("merges.txt", "#version: 0.2\r\nh e\r\n\r\n");
  EXPECT_THAT(encode(*load_tokenizer(folder_ / ""), "hello"), ElementsAre(256, 'l', 'l', 'o'));
}

TEST_F(TwoFiles, ATokenizerJsonComesFirst) {
  folder_.write("tokenizer.json", small_tokenizer().dump());
  EXPECT_EQ(load_tokenizer(folder_ / "")->vocab(), 256);
  EXPECT_EQ(load_tokenizer(folder_ / "tokenizer.json")->vocab(), 256);
  EXPECT_EQ(load_tokenizer(folder_ / "vocab.json")->vocab(), 262);
}

TEST_F(TwoFiles, CanBeTakenAlong) {
  const auto names = [](const std::filesystem::path& path) {
    std::vector<std::string> all;
    for (const TokenizerFile& file : tokenizer_files(path))
      all.push_back(file.path.filename().string() + ">" + file.name);
    return all;
  };
  for (const char* name : {"vocab.json", "merges.txt", ""})
    EXPECT_THAT(names(folder_ / name), ElementsAre("vocab.json>vocab.json", "merges.txt>merges.txt")) << name;
  folder_.write("20B_tokenizer.json", small_tokenizer().dump());
  EXPECT_THAT(names(folder_ / "20B_tokenizer.json"), ElementsAre("20B_tokenizer.json>tokenizer.json"));
  folder_.write("x.model", "");
  EXPECT_THAT(names(folder_ / "x.model"), ElementsAre("x.model>tokenizer.model"));
  EXPECT_THAT(names("bytes"), ElementsAre());
  EXPECT_THAT(names(folder_ / "none.json"), ElementsAre());
  EXPECT_THAT(names(TempFolder() / ""), ElementsAre());
  std::filesystem::rename(folder_ / "vocab.json", folder_ / "gpt2-vocab.json");
  std::filesystem::rename(folder_ / "merges.txt", folder_ / "gpt2-merges.txt");
  const TempFolder copy;
  for (const TokenizerFile& file : tokenizer_files(folder_ / "gpt2-merges.txt"))
    std::filesystem::copy_file(file.path, copy / file.name);
  EXPECT_EQ(load_tokenizer(copy / "")->vocab(), 262);
}

TEST_F(TwoFiles, NoTextIsReadAsASpecialToken) {
  json vocab = json::parse(folder_.read("vocab.json"));
  vocab["<|endoftext|>"] = 262;
  folder_.write("vocab.json", vocab.dump());
  const auto tokenizer = load_tokenizer(folder_ / "");
  EXPECT_EQ(tokenizer->end_of_document(), 262);
  EXPECT_EQ(encode(*tokenizer, "<|endoftext|>").size(), 13u);
}

}  // namespace
}  // namespace strata::data
