// strata verify tokenizer, and the verbs that take a BPE tokenizer, as a user runs them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

std::string character(uint32_t code) {
  return code < 0x80 ? std::string(1, static_cast<char>(code))
                     : std::string{static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

class VerifyTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("strata-cli-" + std::to_string(::getpid()) + "-" + test->name());
    fs::create_directories(folder_);
    // Bytes by their characters (GPT-2's), and "ab" and " ab".
    json vocab = json::object();
    uint32_t made_up = 0x100;
    int id = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      vocab[character(prints ? byte : made_up++)] = id++;
    }
    const std::string space = character(0x120);
    vocab["ab"] = 256;
    vocab[space + "ab"] = 257;
    tokenizer_ = {{"version", "1.0"},
                  {"added_tokens", {{{"id", 258}, {"content", "<|endoftext|>"}, {"special", true}}}},
                  {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                  {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", space + " ab"}}}}};
    write("tokenizer.json", tokenizer_.dump());
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  Outcome verify(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"verify", "tokenizer"});
    arguments.insert(arguments.end(), {"--seconds", "0"});
    return strata(arguments, {.folder = folder_.string()});
  }
  json tokenizer_;
  fs::path folder_;
};

TEST_F(VerifyTokenizer, PassesWhereAllAgrees) {
  write("encodings.json",
        R"([{"text": "ab ab", "ids": [256, 257]}, {"text": "<|endoftext|>\u00e9", "ids": [258, 195, 169]}])");
  const Outcome outcome = verify({"."});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("byte-level BPE, 259 ids"), HasSubstr("2 of 2 texts"), HasSubstr("tokens/s"),
                                 HasSubstr("all is the same")));
  EXPECT_THAT(outcome.err, IsEmpty());
  const Outcome as_json = verify({".", "--json"});
  EXPECT_EQ(as_json.code, 0);
  const json report = json::parse(as_json.out);
  EXPECT_EQ(report["passed"], true);
  EXPECT_EQ(report["texts"], 2);
  EXPECT_EQ(report["same_ids"], 2);
  EXPECT_EQ(report["given_back"], 2);
  EXPECT_EQ(report["end_of_document"], 258);
  EXPECT_GT(report["tokens_per_s"].get<double>(), 0);
}

TEST_F(VerifyTokenizer, EndsWithThreeWhereSomethingDiffers) {
  write("encodings.json", R"([{"text": "ab", "ids": [256]}, {"text": "x\nab", "ids": [120, 10, 97, 98]}])");
  const Outcome outcome = verify({"."});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("1 of 2 texts"), HasSubstr("text 1: \"x\\x0aab\""),
                    HasSubstr("id 2: expected [120 10 97 98], got [120 10 256]"), HasSubstr("something differs")));
  const Outcome as_json = verify({".", "--json"});
  EXPECT_EQ(as_json.code, 3);
  const json report = json::parse(as_json.out);
  EXPECT_EQ(report["passed"], false);
  ASSERT_EQ(report["mismatches"].size(), 1u);
  EXPECT_EQ(report["mismatches"][0]["index"], 1);
  EXPECT_EQ(report["mismatches"][0]["got"], json({120, 10, 256}));
}

TEST_F(VerifyTokenizer, BadInputEndsWithTwo) {
  const auto refused = [&](const std::string& part) {
    const Outcome outcome = verify({"."});
    EXPECT_EQ(outcome.code, 2) << part;
    EXPECT_THAT(outcome.err, AllOf(testing::StartsWith("strata: "), HasSubstr(part)));
    EXPECT_THAT(outcome.out, IsEmpty());
  };
  refused("encodings.json: not there");
  write("encodings.json", R"([{"text": "ab"}])");
  refused("encodings.json: [0].ids");
  write("encodings.json", R"([{"text": "ab", "ids": [256]}])");
  tokenizer_["model"]["type"] = "Unigram";
  write("tokenizer.json", tokenizer_.dump());
  refused("tokenizer.json: model.type");
  fs::remove(folder_ / "tokenizer.json");
  refused("no tokenizer in this folder");
}

TEST_F(VerifyTokenizer, OtherVerbsTakeTheTokenizer) {
  write("text.txt", "ab <|endoftext|> ab\n");
  const Outcome built = strata({"data", "build", "--text", "text.txt", "--out", "set", "--tokenizer", ".", "--json"},
                               {.folder = folder_.string()});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(json::parse(built.out)["tokenizer"]["vocab"], 259);
  const Outcome inspected =
      strata({"data", "inspect", "set", "--tokenizer", "tokenizer.json", "--json"}, {.folder = folder_.string()});
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  const json ids = json::parse(inspected.out)["shown"][0]["ids"];
  EXPECT_EQ(ids[0], 256);
  EXPECT_EQ(ids[2], 258);
  EXPECT_EQ(ids.back(), 258);
}

}  // namespace
}  // namespace strata::cli
