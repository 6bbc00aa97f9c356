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
  EXPECT_THAT(inspected.out, AllOf(HasSubstr("set: sound"), HasSubstr("documents  360: "),
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
  EXPECT_EQ(inspected["distinct_ids"], 30);
  EXPECT_DOUBLE_EQ(inspected["unigram_entropy"].get<double>(), built["train"]["unigram_entropy"].get<double>());
  EXPECT_EQ(inspected["document_lengths"]["least"], 29);
  EXPECT_EQ(inspected["document_lengths"]["most"], 31);
  EXPECT_EQ(inspected["shown"].size(), 1u);
  EXPECT_EQ(inspected["shown"][0]["text"], "Entry 0");
  EXPECT_EQ(inspected["shown"][0]["ids"].size(), 7u);
  const json three = json::parse(data({"inspect", "set", "--json", "--document", "398", "--count", "3"}).out);
  EXPECT_EQ(three["shown"].size(), 2u);
  EXPECT_EQ(three["shown"][1]["number"], 399);
  EXPECT_EQ(three["shown"][1]["text"], nullptr);
}

TEST_F(Data, ReadsJsonLinesCompressedFilesAndFolders) {
  fs::create_directory(folder_ / "in");
  write("in/b.jsonl", "{\"content\": \"one\"}\n{\"content\": \"\"}\n{\"id\": 4, \"content\": \"t\\u00e9n\"}\n");
  write("in/a.txt", "plain\f");
  write("in/README", "not for training");
  ASSERT_EQ(run_program("gzip", {(folder_ / "in/b.jsonl").string()}).code, 0);
  const Outcome outcome = data({"build", "--text", "in", "text.txt", "--out", "set", "--bytes", "--json-key", "content",
                                "--json", "--workers", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json built = json::parse(outcome.out);
  EXPECT_EQ(built["train"]["documents"], 403);
  EXPECT_EQ(built["empty_documents"], 1);
  EXPECT_EQ(built["input_files"], 3);
  EXPECT_EQ(built["left_out_files"], 1);
  EXPECT_EQ(built["workers"], 3);
  EXPECT_EQ(built["resumed_tokens"], 0);
  EXPECT_GT(built["tokens_per_s"], 0);
  const json inspected = json::parse(data({"inspect", "set", "--tokenizer", "bytes", "--json", "--count", "3"}).out);
  EXPECT_EQ(inspected["shown"][0]["text"], "plain");
  EXPECT_EQ(inspected["shown"][1]["text"], "one");
  EXPECT_EQ(inspected["shown"][2]["text"], "t\xc3\xa9n");
  // A tokenizer learnt from the same files.
  const Outcome trained =
      data({"build", "--text", "in", "text.txt", "--out", "own", "--train-tokenizer", "300", "--json-key", "content"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(fs::exists(folder_ / "own.model"));
}

TEST_F(Data, InspectChecksIdsAndTokenizersAgainstAVocabulary) {
  ASSERT_EQ(data({"build", "--text", "text.txt", "--out", "set", "--bytes"}).code, 0);
  EXPECT_EQ(data({"inspect", "set", "--vocab", "257"}).code, 0);
  const Outcome ids = data({"inspect", "set", "--vocab", "200"});
  EXPECT_EQ(ids.code, 2);
  EXPECT_THAT(ids.err, AllOf(HasSubstr("set.bin"), HasSubstr("id 256"), HasSubstr("0 to 199")));
  const Outcome tokenizer = data({"inspect", "set", "--vocab", "256", "--tokenizer", "bytes"});
  EXPECT_EQ(tokenizer.code, 2);
  EXPECT_THAT(tokenizer.err, AllOf(HasSubstr("--vocab 256"), HasSubstr("257 ids")));
}

// The text is a hole of many gigabytes in the file system, so that no signal comes too late.
TEST_F(Data, ASignalKeepsWhatIsDoneAndLeavesNothingThatLooksFinished) {
  write("endless.txt", "");
  fs::resize_file(folder_ / "endless.txt", uintmax_t{200} << 30);
  for (const auto& [signal, code] : {std::pair("INT", 4), std::pair("TERM", 4), std::pair("KILL", 128 + 9)}) {
    const Outcome outcome = run_program(
        "/bin/bash",
        {"-c",
         "\"$0\" data build --text endless.txt --bytes --out set --save-every 1 & child=$!; for i in $(seq 6000); do "
         "[[ -e set.building/state.json ]] && break; sleep 0.01; done; kill -s \"$1\" $child; wait $child",
         STRATA_PROGRAM, signal},
        {.folder = folder_.string()});
    ASSERT_EQ(outcome.code, code) << signal << outcome.err;
    if (code == 4) {
      EXPECT_THAT(outcome.err, AllOf(HasSubstr("stopped after"), HasSubstr("the same command goes on")));
    }
    EXPECT_THAT(names(), ElementsAre("endless.txt", "set.building", "text.txt"));
    const Outcome inspected = data({"inspect", "set"});
    EXPECT_EQ(inspected.code, 2);
    EXPECT_THAT(inspected.err, HasSubstr("not finished"));
    const Outcome other = data({"build", "--text", "endless.txt", "--bytes", "--out", "set", "--piece", "100"});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, AllOf(HasSubstr("--piece was 16384 then and is 100 now"), HasSubstr("--restart")));
    fs::remove_all(folder_ / "set.building");
  }
}

// A limit on the size of files stands in for a full disk.
TEST_F(Data, ABuildThatRanOutOfDiskGoesOn) {
  std::string text;
  for (int i = 0; text.size() < 1500000; ++i)
    text += "line " + std::to_string(i * 7919 % 100003) + (i % 9 == 0 ? "\f" : "\n");
  write("big.txt", text);
  const std::vector<std::string> build = {"data", "build", "--text", "big.txt",      "--bytes", "--validation",
                                          "0.1",  "--out", "set",    "--save-every", "300000"};
  std::vector<std::string> limited = {"-c", "trap '' XFSZ; ulimit -f 2000; exec \"$0\" \"$@\"", STRATA_PROGRAM};
  limited.insert(limited.end(), build.begin(), build.end());
  const Outcome full = run_program("/bin/bash", limited, {.folder = folder_.string()});
  EXPECT_EQ(full.code, 3) << full.err;
  EXPECT_THAT(full.err,
              AllOf(HasSubstr("train.tokens: cannot write"), HasSubstr("the same command goes on from there")));
  EXPECT_THAT(names(), ElementsAre("big.txt", "set.building", "text.txt"));
  const Outcome resumed = strata(build, {.folder = folder_.string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("went on     from"));
  ASSERT_EQ(data({"build", "--text", "big.txt", "--bytes", "--validation", "0.1", "--out", "whole", "--restart"}).code,
            0);
  for (const char* rest : {".bin", ".idx", "_validation.bin", "_validation.idx"}) {
    std::ifstream a(folder_ / (std::string("set") + rest), std::ios::binary);
    std::ifstream b(folder_ / (std::string("whole") + rest), std::ios::binary);
    EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(a), {}) ==
                std::string(std::istreambuf_iterator<char>(b), {}))
        << rest;
  }
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
  write("bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": 1}\n");
  write("cut.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10));
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
  refused({"build", "--text", "bad.jsonl", "--out", "set", "--bytes"}, "bad.jsonl:2: the key \"text\" holds a number");
  refused({"build", "--text", "bad.jsonl", "--out", "set", "--bytes", "--json-key", "txt"},
          "bad.jsonl:1: no key \"txt\"");
  refused({"build", "--text", "text.txt", "--format", "jsonl", "--out", "set", "--bytes"}, "text.txt:1: not JSON");
  refused({"build", "--text", "cut.gz", "--out", "set", "--bytes"}, "cut.gz: truncated");
  refused({"inspect", "set"}, "set.idx");
  EXPECT_THAT(names(), ElementsAre("bad.jsonl", "cut.gz", "empty.txt", "text.txt", "vocab.json"));
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
