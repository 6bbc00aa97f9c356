#include "data/tokenizer_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/small_tokenizer.h"
#include "data/temp_folder.h"
#include "support/scratch.h"

namespace strata::data {
namespace {

using testing::HasSubstr;

TEST(TokenizerCheck, CountsWhatAgrees) {
  const auto tokenizer = load(small_tokenizer({{"a", "b"}}));
  const TokenizerCheck check = check_tokenizer(*tokenizer, {{"ab", {256}}, {"ab", {'a', 'b'}}, {"", {}}});
  EXPECT_EQ(check.texts, 3);
  EXPECT_EQ(check.same_ids, 2);
  EXPECT_EQ(check.given_back, 3);
  EXPECT_EQ(check.bytes, 4);
  EXPECT_EQ(check.tokens, 2);
  EXPECT_FALSE(check.passed());
  ASSERT_EQ(check.mismatches.size(), 1u);
  EXPECT_EQ(check.mismatches[0].index, 1u);
  EXPECT_EQ(check.mismatches[0].got, std::vector<int32_t>{256});
}

// Bytes, of which decoding gives only the first back.
class Forgetful final : public Tokenizer {
 public:
  int64_t vocab() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& out) const override { out.assign(text.begin(), text.end()); }
  std::string decode(std::span<const int32_t> ids) const override {
    return ids.empty() ? "" : std::string(1, static_cast<char>(ids[0]));
  }
  std::optional<int32_t> end_of_document() const override { return {}; }
  bool exact() const override { return false; }
  std::string description() const override { return "forgetful"; }
};

TEST(TokenizerCheck, NormalFormsPassAndLostTextDoesNot) {
  nlohmann::json nfc = small_tokenizer();
  nfc["normalizer"] = {{"type", "NFC"}};
  const TokenizerCheck normal = check_tokenizer(*load(nfc), {{"e\u0301", {0xC3, 0xA9}}});
  EXPECT_TRUE(normal.passed());
  EXPECT_EQ(normal.normalised, 1);
  EXPECT_EQ(normal.given_back, 0);

  const TokenizerCheck lost = check_tokenizer(Forgetful(), {{"ab", {'a', 'b'}}});
  EXPECT_EQ(lost.same_ids, 1);
  EXPECT_FALSE(lost.passed());
  ASSERT_EQ(lost.mismatches.size(), 1u);
  EXPECT_TRUE(lost.mismatches[0].decoding);
  EXPECT_EQ(lost.mismatches[0].decoded, "a");
}

TEST(TokenizerCheck, ReadsOnlyWhatIsMeant) {
  const TempFolder folder;
  const auto refused = [&](const std::string& content, const std::string& part) {
    EXPECT_THAT(message_of(Fault::input, [&] { read_encodings(folder.write("e.json", content)); }),
                testing::AllOf(HasSubstr("e.json"), HasSubstr(part)))
        << content;
  };
  refused("[]", "not an empty one");
  refused("{}", "a list");
  refused("[3]", "[0] is no object");
  refused(R"([{"ids": []}])", "[0].text");
  refused(R"([{"text": "", "ids": []}, {"text": "a"}])", "[1].ids");
  refused(R"([{"text": "", "ids": [1, -1]}])", "-1");
  refused(R"([{"text": "", "ids": [4294967296]}])", "4294967296");
  refused(R"([{"text": "", "ids": [1)", "not valid JSON");
  EXPECT_THAT(message_of(Fault::input, [&] { read_encodings(folder / "none.json"); }), HasSubstr("none.json"));
  EXPECT_EQ(read_encodings(folder.write("e.json", R"([{"text": "\u00e9", "ids": [1, 2], "more": 3}])"))[0].text,
            "\u00E9");
}

TEST(TokenizerCheck, MeasuresSomething) {
  const auto tokenizer = load(small_tokenizer({{"a", "b"}}));
  const TokenizerSpeed speed = measure_tokenizer(*tokenizer, "ab \u00E9", 0);
  EXPECT_GE(speed.bytes, 1 << 20);
  EXPECT_GT(speed.tokens, 0);
  EXPECT_EQ(measure_tokenizer(*tokenizer, "", 0).tokens, 0);
  EXPECT_EQ(prose_of({{"some prose", {}}, {"aaaa bbbb", {}}, {"1 2 3 4 5", {}}}), "some prose\n");
  EXPECT_EQ(prose_of({{"12", {}}}), "12\n");
}

class Reference : public testing::TestWithParam<const char*> {};

TEST_P(Reference, HuggingFacesIds) {
  const std::filesystem::path folder = std::filesystem::path("tokenizers") / GetParam();
  STRATA_NEED_SHARED(folder);
  const auto tokenizer = load_tokenizer(test::shared_folder() / folder);
  EXPECT_TRUE(tokenizer->exact());
  const TokenizerCheck check =
      check_tokenizer(*tokenizer, read_encodings(test::shared_folder() / folder / "encodings.json"));
  EXPECT_GT(check.texts, 0);
  EXPECT_EQ(check.same_ids, check.texts);
  EXPECT_EQ(check.given_back, check.texts);
  for (const TokenizerMismatch& mismatch : check.mismatches) ADD_FAILURE() << mismatch.index << ": " << mismatch.text;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string text = odd_text(seed, false);
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Reference, testing::Values("gpt2", "llama3"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace strata::data
