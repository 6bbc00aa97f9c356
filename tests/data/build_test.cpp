#include "data/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "data/compress.h"
#include "data/megatron.h"
#include "data/sentencepiece.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

BuildReport build_dataset(const Tokenizer& tokenizer, const BuildOptions& options) {
  return DatasetBuild(options).run(tokenizer);
}

// Documents of a dataset as text, '$' for the end of a document.
std::vector<std::string> contents(const std::filesystem::path& prefix, const Tokenizer& tokenizer) {
  const MegatronFile file(prefix);
  std::vector<std::string> all;
  for (int64_t d = 0; d < file.index().documents(); ++d) {
    std::string text;
    const int64_t begin = file.index().document_begin(d), end = file.index().document_begin(d + 1);
    std::vector<int32_t> ids(static_cast<size_t>(end - begin));
    file.read(begin, tokenizer.vocab(), ids);
    for (const int32_t id : ids)
      text += id == tokenizer.end_of_document() ? "$" : tokenizer.decode(std::vector<int32_t>{id});
    all.push_back(text);
  }
  return all;
}

TEST(Build, MakesOneDocumentAFormFeedEachWithAnEnd) {
  const TempFolder folder;
  BuildOptions options;
  options.texts = {folder.write("a.txt", "one two\n\f\n\f\nthree\n"), folder.write("b.txt", "four\n")};
  options.prefix = folder / "out/data";  // the folder is made
  const auto bytes = byte_tokenizer();
  const BuildReport report = build_dataset(*bytes, options);
  EXPECT_THAT(contents(folder / "out/data", *bytes), ElementsAre("one two$", "three$", "four$"));
  EXPECT_EQ(report.train.documents, 3);
  EXPECT_EQ(report.train.bytes, 16);
  EXPECT_EQ(report.train.tokens, 19);
  EXPECT_EQ(report.empty_documents, 1);
  EXPECT_EQ(report.dtype, DType::u16);
  EXPECT_FALSE(report.validation.has_value());
}

TEST(Build, CutsLongDocumentsIntoSequencesOfOneDocument) {
  const TempFolder folder;
  BuildOptions options;
  const std::string text = "The first paragraph.\n\nThe second one.\n\nThe third.";
  options.texts = {folder.write("a.txt", text)};
  options.prefix = folder / "data";
  options.read.piece_bytes = 24;
  const auto bytes = byte_tokenizer();
  const BuildReport report = build_dataset(*bytes, options);
  EXPECT_THAT(contents(folder / "data", *bytes), ElementsAre(text + "$"));
  EXPECT_EQ(report.train.sequences, 3);
}

TEST(Build, SplitsOffAValidationPartWithoutJoiningWhatWasApart) {
  const TempFolder folder;
  BuildOptions options;
  options.texts = {
      folder.write("a.txt",
                   "Paragraph number one.\n\nParagraph number two.\n\nParagraph number three.\n\nNumber four.\f"
                   "short five\fshort six")};
  options.prefix = folder / "data";
  options.read.piece_bytes = 26;
  options.validation = 0.5;
  const auto bytes = byte_tokenizer();
  const BuildReport report = build_dataset(*bytes, options);
  EXPECT_THAT(contents(folder / "data_validation", *bytes),
              ElementsAre("Paragraph number one.\n\n$", "Paragraph number three.\n\n$", "short five$"));
  EXPECT_THAT(contents(folder / "data", *bytes),
              ElementsAre("Paragraph number two.\n\n$", "Number four.$", "short six$"));
  ASSERT_TRUE(report.validation.has_value());
  EXPECT_EQ(report.validation->documents, 3);
}

TEST(Build, TakesTheShareThatWasAskedFor) {
  const TempFolder folder;
  BuildOptions options;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "document " + std::to_string(i) + "\n";
  options.texts = {folder.write("a.txt", text)};
  options.prefix = folder / "data";
  options.read.rule = DocumentRule::line;
  options.validation = 0.01;
  const BuildReport report = build_dataset(*byte_tokenizer(), options);
  EXPECT_EQ(report.validation->documents, 10);
  EXPECT_EQ(report.train.documents, 990);
}

TEST(Build, CountsTheEntropyOfSingleTokens) {
  EXPECT_DOUBLE_EQ(unigram_entropy({0, 8, 0, 8}), std::log(2.0));
  EXPECT_DOUBLE_EQ(unigram_entropy({0, 5}), 0);
  const TempFolder folder;
  BuildOptions options;
  options.texts = {folder.write("a.txt", "aab")};
  options.prefix = folder / "data";
  const BuildReport report = build_dataset(*byte_tokenizer(), options);
  EXPECT_NEAR(report.train.entropy, 0.5 * std::log(2) + 2 * 0.25 * std::log(4), 1e-12);  // a a b and the end
}

TEST(Build, TwoRunsGiveTheSameBytes) {
  const TempFolder folder;
  BuildOptions options;
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += "sentence " + std::to_string(i * 7919 % 1000) + " of many" + (i % 9 == 0 ? "\n\f\n" : ". ");
  options.texts = {folder.write("a.txt", text)};
  options.validation = 0.1;
  for (const char* name : {"one", "two"}) {
    options.prefix = folder / name;
    DatasetBuild build(options);
    const std::string model = train_sentencepiece(build.inputs().files, {.vocab = 305});
    build.keep_tokenizer(model);
    build.run(*load_sentencepiece(model, "m"));
  }
  for (const char* rest : {".bin", ".idx", ".model", "_validation.bin", "_validation.idx"}) {
    EXPECT_FALSE(folder.read(std::string("one") + rest).empty()) << rest;
    EXPECT_EQ(folder.read(std::string("one") + rest), folder.read(std::string("two") + rest)) << rest;
  }
  EXPECT_EQ(load_tokenizer(folder / "one.model")->vocab(), 305);
}

TEST(Build, RefusesEmptyTextAndLeavesNothing) {
  const TempFolder folder;
  BuildOptions options;
  options.prefix = folder / "data";
  EXPECT_THAT(message_of(Fault::input, [&] { build_dataset(*byte_tokenizer(), options); }), HasSubstr("no text files"));
  options.texts = {folder.write("empty.txt", ""), folder.write("blank.txt", "\n \f\n\n")};
  EXPECT_THAT(message_of(Fault::input, [&] { build_dataset(*byte_tokenizer(), options); }),
              AllOf(HasSubstr("empty.txt"), HasSubstr("no text")));
  options.texts = {folder.write("a.txt", "text"), folder / "missing.txt"};
  EXPECT_THAT(message_of(Fault::input, [&] { build_dataset(*byte_tokenizer(), options); }), HasSubstr("missing.txt"));
  options.texts.pop_back();
  options.validation = 0.1;
  EXPECT_THAT(message_of(Fault::input, [&] { build_dataset(*byte_tokenizer(), options); }),
              HasSubstr("leaves no text to train on"));
  for (const double share : {-0.1, 1.0, 2.0, std::nan("")}) {
    options.validation = share;
    EXPECT_THAT(message_of(Fault::input, [&] { build_dataset(*byte_tokenizer(), options); }), HasSubstr("fraction"));
  }
  EXPECT_THAT(folder.names(), ElementsAre("a.txt", "blank.txt", "empty.txt"));
}

// A tokenizer that takes valid UTF-8 only, as most SentencePiece models do.
class Strict final : public Tokenizer {
 public:
  int64_t vocab() const override { return 257; }
  void encode(std::string_view text, std::vector<int32_t>& out) const override { byte_tokenizer()->encode(text, out); }
  std::string decode(std::span<const int32_t> ids) const override { return byte_tokenizer()->decode(ids); }
  std::optional<int32_t> end_of_document() const override { return std::nullopt; }
  bool exact() const override { return false; }
  std::string description() const override { return "strict"; }
};

TEST(Build, NamesTheByteThatIsNotUtf8) {
  const TempFolder folder;
  BuildOptions options;
  options.texts = {folder.write("a.txt", "fine\n\f\n  caf\xe9 bad")};
  options.prefix = folder / "data";
  EXPECT_THAT(message_of(Fault::input, [&] { build_dataset(Strict(), options); }),
              AllOf(HasSubstr("a.txt"), HasSubstr("byte 12"), HasSubstr("strict")));
  EXPECT_THAT(folder.names(), ElementsAre("a.txt"));
  const auto bytes = byte_tokenizer();
  build_dataset(*bytes, options);
  EXPECT_THAT(contents(folder / "data", *bytes), ElementsAre("fine$", "  caf\xe9 bad$"));
}

TEST(Build, AddsNoEndWhereTheTokenizerHasNone) {
  const TempFolder folder;
  BuildOptions options;
  options.texts = {folder.write("a.txt", "one\ftwo")};
  options.prefix = folder / "data";
  const Strict strict;
  build_dataset(strict, options);
  EXPECT_THAT(contents(folder / "data", strict), ElementsAre("one", "two"));
}

// A limit on the size of files stands in for a full disk: writes past it fail as they do there, with another word for
// it.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

TEST(Build, LeavesWhatWasThereWhenTheDiskIsFull) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += "ab\n";
  BuildOptions options;
  options.texts = {folder.write("a.txt", lines)};
  options.prefix = folder / "data";
  options.read.rule = DocumentRule::line;
  options.validation = 0.25;
  // The index is the largest file (20 bytes a document), then the borders, the tokens, the lengths: each in turn is the
  // one that no longer fits.
  folder.write("data.idx", "old index");
  folder.write("data.bin", "old tokens");
  folder.write("data.model", "old model");
  const auto before = folder.names();
  for (const rlim_t limit : {rlim_t{10}, rlim_t{30000}, rlim_t{80000}, rlim_t{100000}, rlim_t{250000}}) {
    const FileLimit full(limit);
    EXPECT_THAT(message_of(Fault::run, [&] { build_dataset(*byte_tokenizer(), options); }),
                AllOf(HasSubstr("data"), HasSubstr("cannot write")))
        << limit;
    EXPECT_EQ(folder.names(), before) << limit;
    EXPECT_EQ(folder.read("data.idx"), "old index");
    EXPECT_EQ(folder.read("data.bin"), "old tokens");
    EXPECT_EQ(folder.read("data.model"), "old model");
  }
  build_dataset(*byte_tokenizer(), options);
  EXPECT_EQ(contents(folder / "data", *byte_tokenizer()).size(), 15000u);
}

TEST(Build, NamesAFolderThatCannotBeWrittenTo) {
  const TempFolder folder;
  BuildOptions options;
  options.texts = {folder.write("a.txt", "text")};
  options.prefix = folder / "a.txt/data";
  EXPECT_THAT(message_of(Fault::run, [&] { build_dataset(*byte_tokenizer(), options); }), HasSubstr("a.txt/data"));
  options.prefix = folder / "";
  EXPECT_THAT(message_of(Fault::input, [&] { build_dataset(*byte_tokenizer(), options); }),
              HasSubstr("name the dataset"));
}

// Text of about `bytes` bytes, in documents of very different lengths.
std::string made_up_text(uint64_t seed, size_t bytes) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    const Random4 bits = philox(seed, i);
    text += "word" + std::to_string(bits[0] % 1000);
    text += bits[1] % 40 == 0 ? "\n\f\n" : bits[1] % 9 == 0 ? "\n" : bits[1] % 50 == 1 ? "\n\n" : " ";
    if (bits[2] % 500 == 0) text += "\f\f";
  }
  return text;
}

std::string made_up_json(uint64_t seed, int documents) {
  std::string lines;
  for (int i = 0; i < documents; ++i) {
    std::string text;
    const Random4 bits = philox(seed, static_cast<uint64_t>(i));
    if (bits[0] % 10 != 0) text = made_up_text(seed + static_cast<uint64_t>(i), bits[0] % 7000);
    lines += nlohmann::json{{"id", i}, {"body", text}}.dump() + "\n";
  }
  return lines;
}

std::string all_files(const TempFolder& folder, const std::string& prefix) {
  std::string all;
  for (const char* rest : {".bin", ".idx", "_validation.bin", "_validation.idx"}) {
    const std::string content = folder.read(prefix + rest);
    EXPECT_FALSE(content.empty()) << rest;
    all += content;
  }
  return all;
}

// Plain text, JSON lines, and each of them compressed.
class Mixed : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string text = made_up_text(1, 150000), more = made_up_text(2, 60000), lines = made_up_json(3, 40);
    options_.texts = {folder_.write("a.txt", text), folder_.write("b.jsonl", lines),
                      folder_.write("c.txt.gz", test::gzip(more)), folder_.write("d.jsonl.zst", test::zstd(lines)),
                      folder_.write("e.txt", "the end\fthe end")};
    options_.prefix = folder_ / "data";
    options_.read.piece_bytes = 1000;
    options_.read.json_key = "body";
    options_.validation = 0.1;
    options_.tokenizer = "bytes";
    options_.save_every = 100000;
    options_.batch_bytes = 20000;
    DatasetBuild(options_).run(*bytes_);
    whole_ = all_files(folder_, "data");
    names_ = folder_.names();
  }
  // Nothing is there but what there was, and data.building if `building`.
  void expect_left(bool building) const {
    std::vector<std::string> now = folder_.names(), wanted;
    for (const std::string& name : names_)
      if (!name.starts_with("data")) wanted.push_back(name);
    if (building) wanted.emplace_back("data.building");
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(now, wanted);
  }
  void remove_result() const {
    for (const char* rest : {".bin", ".idx", "_validation.bin", "_validation.idx"})
      std::filesystem::remove(folder_ / (std::string("data") + rest));
  }
  // Builds until `tokens` are made, and stops.
  void stop_at(int64_t tokens) {
    std::atomic<bool> stop = false;
    BuildOptions options = options_;
    options.stop = &stop;
    options.progress = [&](const BuildProgress& progress) { stop = progress.tokens >= tokens; };
    EXPECT_THAT(message_of(Fault::interrupted, [&] { DatasetBuild(options).run(*bytes_); }),
                AllOf(HasSubstr("stopped after"), HasSubstr("data.building"), HasSubstr("goes on")));
  }
  const TempFolder folder_;
  BuildOptions options_;
  std::unique_ptr<Tokenizer> bytes_ = byte_tokenizer();
  std::string whole_;
  std::vector<std::string> names_;
};

TEST_F(Mixed, GivesTheSameBytesWithAnyNumberOfWorkers) {
  for (const int workers : {2, 3, 8}) {
    remove_result();
    options_.workers = workers;
    const BuildReport report = DatasetBuild(options_).run(*bytes_);
    EXPECT_EQ(report.input_files, 5);
    EXPECT_EQ(report.earlier_tokens, 0);
    EXPECT_TRUE(all_files(folder_, "data") == whole_) << workers;
  }
}

TEST_F(Mixed, HoldsWhatTheFilesSay) {
  const auto documents = contents(folder_ / "data", *bytes_);
  EXPECT_EQ(documents.back(), "the end$");
  // Every document of both JSON files that is not empty, the validation's pieces left out.
  options_.texts = {options_.texts[1]};
  options_.validation = 0;
  options_.prefix = folder_ / "json";
  const BuildReport report = DatasetBuild(options_).run(*bytes_);
  std::vector<std::string> wanted;
  for (int i = 0; i < 40; ++i) {
    const Random4 bits = philox(3, static_cast<uint64_t>(i));
    std::string text;
    if (bits[0] % 10 != 0) text = made_up_text(3 + static_cast<uint64_t>(i), bits[0] % 7000);
    if (!text.empty()) wanted.push_back(text + "$");
  }
  EXPECT_TRUE(contents(folder_ / "json", *bytes_) == wanted);
  EXPECT_EQ(report.empty_documents, 40 - static_cast<int64_t>(wanted.size()));
  EXPECT_GT(report.empty_documents, 0);
}

TEST_F(Mixed, GoesOnWhereItWasStopped) {
  for (const int64_t tokens : {1, 60000, 150000, 250000, 350000}) {
    remove_result();
    options_.workers = tokens % 3 == 0 ? 2 : 1;
    stop_at(tokens);
    expect_left(true);
    EXPECT_THAT(message_of(Fault::input, [&] { MegatronFile file(folder_ / "data"); }), HasSubstr("data.building"));
    DatasetBuild build(options_);
    EXPECT_GE(build.earlier_tokens(), tokens);
    const BuildReport report = build.run(*bytes_);
    EXPECT_GE(report.earlier_tokens, tokens);
    EXPECT_TRUE(all_files(folder_, "data") == whole_) << tokens;
    EXPECT_EQ(report.train.entropy, DatasetBuild(options_).run(*bytes_).train.entropy);
  }
  EXPECT_EQ(folder_.names(), names_);
}

TEST_F(Mixed, AnyNumberOfStopsMakesNoDifference) {
  remove_result();
  for (int64_t tokens = 0;; tokens += 60000) {
    std::atomic<bool> stop = false;
    options_.stop = &stop;
    options_.progress = [&](const BuildProgress& progress) { stop = progress.tokens >= tokens; };
    try {
      DatasetBuild(options_).run(*bytes_);
      break;
    } catch (const Error& error) {
      ASSERT_EQ(error.fault(), Fault::interrupted) << error.what();
      ASSERT_LT(tokens, 1000000);
    }
  }
  EXPECT_TRUE(all_files(folder_, "data") == whole_);
}

TEST_F(Mixed, AKilledBuildLeavesNothingFinishedAndGoesOn) {
  remove_result();
  // SIGKILL, in a process of its own: nothing is cleaned up. Far enough on for a point to go on from.
  for (const int64_t tokens : {1, 150000, 330000}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      options_.progress = [&](const BuildProgress& progress) {
        if (progress.tokens >= tokens) ::raise(SIGKILL);
      };
      try {
        DatasetBuild(options_).run(*bytes_);
      } catch (...) {
      }
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    expect_left(true);
  }
  DatasetBuild build(options_);
  EXPECT_GT(build.earlier_tokens(), 250000);
  build.run(*bytes_);
  EXPECT_TRUE(all_files(folder_, "data") == whole_);
  EXPECT_EQ(folder_.names(), names_);
}

// Copies of the work folder stand for kills between any two names.
TEST_F(Mixed, GivesNamesHoweverOftenItIsKilledThere) {
  remove_result();
  stop_at(350000);
  options_.stop = nullptr;
  options_.progress = nullptr;
  // The state just before the names are given: make it by running to the end with the folder saved in between.
  const auto copy = [&](const std::string& from, const std::string& to) {
    std::filesystem::remove_all(folder_ / to);
    std::filesystem::copy(folder_ / from, folder_ / to, std::filesystem::copy_options::recursive);
  };
  {
    // A name that cannot be given ends the run there.
    std::filesystem::create_directory(folder_ / "data.bin");
    folder_.write("data.bin/in the way", "");
    EXPECT_THAT(message_of(Fault::run, [&] { DatasetBuild(options_).run(*bytes_); }),
                AllOf(HasSubstr("data.bin"), HasSubstr("rename"), HasSubstr("goes on")));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "data.idx"));
    std::filesystem::remove_all(folder_ / "data.bin");
  }
  copy("data.building", "kept");
  const auto finish = [&] {
    const BuildReport report = DatasetBuild(options_).run(*bytes_);
    EXPECT_EQ(report.earlier_tokens, report.train.tokens + report.validation->tokens);
    EXPECT_GT(report.train.entropy, 1);
    EXPECT_TRUE(all_files(folder_, "data") == whole_);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "data.building"));
  };
  finish();  // the validation part has its name already
  copy("kept", "data.building");
  std::filesystem::rename(folder_ / "data.building/train.tokens", folder_ / "data.bin");
  std::filesystem::remove(folder_ / "data.idx");
  EXPECT_THAT(message_of(Fault::input, [&] { MegatronFile file(folder_ / "data"); }), HasSubstr("data.idx"));
  finish();
  copy("kept", "data.building");
  std::filesystem::remove(folder_ / "data.building/train.tokens");
  std::filesystem::remove(folder_ / "data.building/train.index");
  finish();
  copy("kept", "data.building");
  std::filesystem::remove(folder_ / "data.building/train.index");
  remove_result();
  EXPECT_THAT(message_of(Fault::input, [&] { DatasetBuild(options_).run(*bytes_); }),
              AllOf(HasSubstr("damaged"), HasSubstr("--restart")));
}

TEST_F(Mixed, RefusesToGoOnWithSomethingElse) {
  remove_result();
  stop_at(200000);
  options_.stop = nullptr;
  options_.progress = nullptr;
  const auto refused = [&](auto change) {
    BuildOptions options = options_;
    change(options);
    const std::string message = message_of(Fault::input, [&] { DatasetBuild build(options); });
    EXPECT_THAT(message, AllOf(HasSubstr("data.building"), HasSubstr("--restart")));
    return message;
  };
  EXPECT_THAT(refused([](BuildOptions& o) { o.read.piece_bytes = 2000; }),
              AllOf(HasSubstr("--piece"), HasSubstr("1000"), HasSubstr("2000")));
  EXPECT_THAT(refused([](BuildOptions& o) { o.read.rule = DocumentRule::line; }), HasSubstr("--documents"));
  EXPECT_THAT(refused([](BuildOptions& o) { o.read.json_key = "text"; }), HasSubstr("--json-key"));
  EXPECT_THAT(refused([](BuildOptions& o) { o.validation = 0; }), HasSubstr("--validation"));
  EXPECT_THAT(refused([](BuildOptions& o) { o.tokenizer = "gpt2"; }), AllOf(HasSubstr("tokenizer"), HasSubstr("gpt2")));
  EXPECT_THAT(refused([](BuildOptions& o) { std::swap(o.texts[0], o.texts[1]); }),
              AllOf(HasSubstr("a.txt"), HasSubstr("b.jsonl")));
  EXPECT_THAT(refused([](BuildOptions& o) { o.texts = {o.texts[0]}; }), HasSubstr("b.jsonl"));
  EXPECT_THAT(refused([](BuildOptions& o) { o.format = Format::text; }), HasSubstr("b.jsonl"));

  // What has been read may not change; what has not may.
  const std::string before = folder_.read("a.txt");
  folder_.write("a.txt", before + "more");
  EXPECT_THAT(refused([](BuildOptions&) {}), AllOf(HasSubstr("a.txt"), HasSubstr("has changed")));
  BuildOptions restarted = options_;
  restarted.restart = true;
  EXPECT_EQ(DatasetBuild(restarted).run(*bytes_).earlier_tokens, 0);
  folder_.write("a.txt", before);
  remove_result();
  stop_at(200000);
  options_.stop = nullptr;
  options_.progress = nullptr;
  folder_.write("e.txt", "another end\fanother end");
  EXPECT_GE(DatasetBuild(options_).run(*bytes_).earlier_tokens, 200000);
  EXPECT_EQ(contents(folder_ / "data", *bytes_).back(), "another end$");
}

TEST_F(Mixed, RefusesADamagedWorkFolder) {
  remove_result();
  stop_at(200000);
  options_.stop = nullptr;
  options_.progress = nullptr;
  for (const char* name : {"state.json", "manifest.json"}) {
    const std::string path = std::string("data.building/") + name, content = folder_.read(path);
    for (const std::string& damage : {std::string("{"), std::string("{}"), content.substr(0, content.size() / 2)}) {
      folder_.write(path, damage);
      EXPECT_THAT(message_of(Fault::input, [&] { DatasetBuild(options_).run(*bytes_); }), HasSubstr("--restart"));
    }
    folder_.write(path, content);
  }
  std::filesystem::resize_file(folder_ / "data.building/train.tokens", 1000);
  EXPECT_THAT(message_of(Fault::input, [&] { DatasetBuild(options_).run(*bytes_); }),
              AllOf(HasSubstr("train.tokens"), HasSubstr("1000"), HasSubstr("--restart")));
  options_.restart = true;
  DatasetBuild(options_).run(*bytes_);
  EXPECT_TRUE(all_files(folder_, "data") == whole_);
}

TEST_F(Mixed, OneBuildOfADatasetAtATime) {
  const DatasetBuild first(options_);
  EXPECT_THAT(message_of(Fault::input, [&] { DatasetBuild second(options_); }),
              AllOf(HasSubstr("data.building"), HasSubstr("another build"), HasSubstr(std::to_string(::getpid()))));
  options_.prefix = folder_ / "other";
  const DatasetBuild other(options_);
}

// The error of the earliest place comes, however many workers there are and however far reading is ahead of them.
TEST_F(Mixed, ErrorsComeInTheOrderOfTheText) {
  const std::string gz = folder_.read("c.txt.gz");
  folder_.write("c.txt.gz", gz.substr(0, gz.size() / 2));
  for (const int workers : {1, 4}) {
    options_.workers = workers;
    options_.restart = true;
    EXPECT_THAT(message_of(Fault::input, [&] { DatasetBuild(options_).run(*bytes_); }),
                AllOf(HasSubstr("c.txt.gz"), HasSubstr("truncated"), HasSubstr("goes on from there")));
    folder_.write("b.jsonl", "{\"body\": \"one\"}\n{\"body\": 2}\n");
    EXPECT_THAT(message_of(Fault::input, [&] { DatasetBuild(options_).run(*bytes_); }),
                AllOf(HasSubstr("b.jsonl:2: "), HasSubstr("body"), HasSubstr("a number")));
    folder_.write("b.jsonl", made_up_json(3, 40));
  }
}

TEST_F(Mixed, AFullDiskKeepsWhatWasDone) {
  remove_result();
  {
    const FileLimit full(500000);
    EXPECT_THAT(message_of(Fault::run, [&] { DatasetBuild(options_).run(*bytes_); }),
                AllOf(HasSubstr("train.tokens: cannot write"), HasSubstr("goes on from there")));
    expect_left(true);
  }
  EXPECT_GT(DatasetBuild(options_).run(*bytes_).earlier_tokens, 100000);
  EXPECT_TRUE(all_files(folder_, "data") == whole_);
}

TEST(Build, AFileThatChangesMeanwhileIsNamed) {
  const TempFolder folder;
  BuildOptions options;
  options.texts = {folder.write("a.txt", "text"), folder.write("b.txt", "more text")};
  options.prefix = folder / "data";
  {
    DatasetBuild build(options);
    folder.write("b.txt", "more text than that");
    EXPECT_THAT(message_of(Fault::input, [&] { build.run(*byte_tokenizer()); }),
                AllOf(HasSubstr("b.txt"), HasSubstr("9 bytes"), HasSubstr("19")));
  }
  {
    DatasetBuild build(options);
    std::filesystem::remove(folder / "b.txt");
    EXPECT_THAT(message_of(Fault::input, [&] { build.run(*byte_tokenizer()); }),
                AllOf(HasSubstr("b.txt"), HasSubstr("No such file")));
  }
  EXPECT_THAT(folder.names(), ElementsAre("a.txt"));
}

TEST(Build, KnowsATokenizerByItsFiles) {
  const TempFolder folder;
  EXPECT_EQ(tokenizer_identity("bytes"), "bytes");
  folder.write("vocab.json", "{}");
  folder.write("merges.txt", "a b");
  const std::string pair = tokenizer_identity(folder / "vocab.json");
  EXPECT_THAT(pair, AllOf(HasSubstr("vocab.json:"), HasSubstr("merges.txt:")));
  EXPECT_EQ(tokenizer_identity(folder / ""), pair);
  folder.write("merges.txt", "a c");
  EXPECT_NE(tokenizer_identity(folder / "vocab.json"), pair);
  EXPECT_THAT(message_of(Fault::input, [&] { tokenizer_identity(folder / "none"); }), HasSubstr("none"));
}

}  // namespace
}  // namespace strata::data
