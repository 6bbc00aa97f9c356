#include "data/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "data/megatron.h"
#include "data/sentencepiece.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  options.piece_bytes = 24;
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
  options.piece_bytes = 26;
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
  options.rule = DocumentRule::line;
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
    options.tokenizer_model = train_sentencepiece(options.texts, {.vocab = 305});
    build_dataset(*load_sentencepiece(options.tokenizer_model, "m"), options);
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

TEST(Build, StopsWhenToldAndLeavesNothing) {
  const TempFolder folder;
  BuildOptions options;
  options.texts = {folder.write("a.txt", "text")};
  options.prefix = folder / "data";
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  EXPECT_THAT(message_of(Fault::run, [&] { build_dataset(*byte_tokenizer(), options); }), HasSubstr("stopped"));
  EXPECT_THAT(folder.names(), ElementsAre("a.txt"));
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
  options.rule = DocumentRule::line;
  options.validation = 0.25;
  options.tokenizer_model = std::string(450000, 'm');
  // The index is the largest file (20 bytes a document), then the model, the lengths' spill, the tokens: each in turn
  // is the one that no longer fits.
  folder.write("data.idx", "old index");
  folder.write("data.bin", "old tokens");
  folder.write("data.model", "old model");
  const auto before = folder.names();
  for (const rlim_t limit : {rlim_t{10}, rlim_t{30000}, rlim_t{80000}, rlim_t{250000}, rlim_t{400000}}) {
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

}  // namespace
}  // namespace strata::data
