// The verb data, as a user runs it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Data : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("strata-cli-" + std::to_string(::getpid()) + "-" + test->name());
    fs::create_directories(folder_);
    std::string text;
    for (int i = 0; i < 400; ++i) text += "Entry " + std::to_string(i * 7919 % 1000) + " of the made-up book.\n\f\n";
    write("text.txt", text);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  Outcome data(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "data");
    return strata(arguments, {.folder = folder_.string()});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  fs::path folder_;
};

TEST_F(Data, BuildsWithATokenizerOfItsOwn) {
  const Outcome outcome =
      data({"build", "--text", "text.txt", "--out", "set", "--train-tokenizer", "300", "--validation", "0.1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());  // the library's log is silent
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("set.model (SentencePiece BPE, 300 ids)"), HasSubstr("360 documents"),
                                 HasSubstr("set_validation.bin, .idx: 40 documents"), HasSubstr("nats a token")));
  EXPECT_THAT(names(),
              ElementsAre("set.bin", "set.idx", "set.model", "set_validation.bin", "set_validation.idx", "text.txt"));

  const Outcome inspected = data({"inspect", "set", "--tokenizer", "set.model", "--document", "1"});
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, AllOf(HasSubstr("set: sound"), HasSubstr("documents  360"),
                                   HasSubstr("of 300 in SentencePiece"), HasSubstr("Entry 838 of the made-up book.")));
}

TEST_F(Data, BuildsAndInspectsAsJson) {
  const Outcome outcome = data({"build", "--text", "text.txt", "--out", "set.bin", "--bytes", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json built = json::parse(outcome.out);
  EXPECT_EQ(built["tokenizer"]["file"], "bytes");
  EXPECT_EQ(built["tokenizer"]["vocab"], 257);
  EXPECT_EQ(built["tokenizer"]["end_of_document"], 256);
  EXPECT_EQ(built["element_type"], "u16");
  EXPECT_EQ(built["train"]["documents"], 400);
  EXPECT_EQ(built["train"]["tokens"].get<int64_t>(), built["train"]["bytes"].get<int64_t>() + 400);
  EXPECT_EQ(built["validation"], nullptr);
  EXPECT_GT(built["train"]["unigram_entropy"].get<double>(), 2.0);

  const json inspected = json::parse(data({"inspect", "set", "--tokenizer", "bytes", "--json", "--tokens", "7"}).out);
  EXPECT_EQ(inspected["tokens"], built["train"]["tokens"]);
  EXPECT_EQ(inspected["largest_id"], 256);
  EXPECT_EQ(inspected["document"]["text"], "Entry 0");
  EXPECT_EQ(inspected["document"]["ids"].size(), 7u);
}

TEST_F(Data, DocumentsByLine) {
  write("lines.txt", "one\ntwo\n\nthree\n");
  const json lines = json::parse(
      data({"build", "--text", "lines.txt", "--out", "set", "--bytes", "--documents", "line", "--json"}).out);
  EXPECT_EQ(lines["train"]["documents"], 3);
  const json blank = json::parse(
      data({"build", "--text", "lines.txt", "--out", "set", "--bytes", "--documents", "blank-line", "--json"}).out);
  EXPECT_EQ(blank["train"]["documents"], 2);
}

TEST_F(Data, BadInputExitsWithTwoAndLeavesNothing) {
  write("empty.txt", "\n\n");
  write("vocab.json", "{\"a\": 0}");
  const auto refused = [&](std::vector<std::string> arguments, const std::string& part) {
    const Outcome outcome = data(std::move(arguments));
    EXPECT_EQ(outcome.code, 2) << part;
    EXPECT_THAT(outcome.err, AllOf(testing::StartsWith("strata: "), HasSubstr(part)));
    EXPECT_THAT(outcome.out, IsEmpty());
  };
  refused({"build", "--text", "text.txt", "--out", "set"}, "--tokenizer FILE, --train-tokenizer VOCAB, or --bytes");
  refused({"build", "--text", "text.txt", "--out", "set", "--bytes", "--tokenizer", "x"}, "excludes");
  refused({"build", "--text", "none.txt", "--out", "set", "--bytes"}, "none.txt: cannot open: No such file");
  refused({"build", "--text", "empty.txt", "--out", "set", "--bytes"}, "empty.txt: no text");
  refused({"build", "--text", "empty.txt", "--out", "set", "--train-tokenizer", "300"}, "no text");
  refused({"build", "--text", "text.txt", "--out", "set", "--train-tokenizer", "50000"}, "at most");
  refused({"build", "--text", "text.txt", "--out", "set", "--tokenizer", "vocab.json"}, "vocab.json");
  refused({"build", "--text", "text.txt", "--out", "set", "--bytes", "--validation", "1.5"}, "fraction");
  refused({"inspect", "set"}, "set.idx");
  EXPECT_THAT(names(), ElementsAre("empty.txt", "text.txt", "vocab.json"));
}

TEST_F(Data, InspectFindsWhatIsWrong) {
  ASSERT_EQ(data({"build", "--text", "text.txt", "--out", "set", "--bytes"}).code, 0);
  ASSERT_EQ(data({"build", "--text", "text.txt", "--out", "other", "--train-tokenizer", "300"}).code, 0);
  EXPECT_THAT(data({"inspect", "other", "--tokenizer", "bytes"}).err,
              AllOf(HasSubstr("other.bin"), HasSubstr("0 to 256")));
  EXPECT_THAT(data({"inspect", "set", "--document", "400"}).err, HasSubstr("no document 400: there are 400"));
  fs::resize_file(folder_ / "set.bin", 100);
  const Outcome outcome = data({"inspect", "set", "--json"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(json::parse(outcome.out)["code"], 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("set.bin"), HasSubstr("has 100 bytes"), HasSubstr("truncated")));
}

}  // namespace
}  // namespace strata::cli
