#include "data/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/compress.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Inputs, TellsJsonLinesByTheName) {
  const TempFolder folder;
  const auto format = [&](const char* name) {
    const std::vector<std::filesystem::path> paths = {folder.write(name, "x")};
    return find_inputs(paths).files.at(0).format;
  };
  for (const char* name : {"a.txt", "a.text", "a", "a.md", "a.txt.gz", "a.gz", "a.zst", "jsonl"})
    EXPECT_EQ(format(name), Format::text) << name;
  for (const char* name : {"a.jsonl", "a.ndjson", "a.json", "a.jsonl.gz", "a.json.zst", "a.ndjson.zst"})
    EXPECT_EQ(format(name), Format::json_lines) << name;
  const std::vector<std::filesystem::path> paths = {folder / "a.txt"};
  EXPECT_EQ(find_inputs(paths, Format::json_lines).files.at(0).format, Format::json_lines);
}

TEST(Inputs, AFolderStandsForItsTextsInOrder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "in/b/deep");
  std::filesystem::create_directories(folder / "in/.hidden");
  for (const char* name : {"in/b.txt", "in/a.jsonl.gz", "in/b/deep/z.txt", "in/b/y.json", "in/.hidden/x.txt",
                           "in/.x.txt", "in/README.md", "in/model.bin", "in/B.txt"})
    folder.write(name, "x");
  const std::vector<std::filesystem::path> paths = {folder / "in", folder.write("last.txt", "12345")};
  const Inputs inputs = find_inputs(paths);
  std::vector<std::string> names;
  for (const Input& input : inputs.files) names.push_back(input.path.lexically_relative(folder / "").string());
  EXPECT_THAT(names,
              ElementsAre("in/B.txt", "in/a.jsonl.gz", "in/b.txt", "in/b/deep/z.txt", "in/b/y.json", "last.txt"));
  EXPECT_EQ(inputs.left_out, 2);
  EXPECT_EQ(inputs.bytes(), 10);
}

TEST(Inputs, RefusesWhatCannotBeRead) {
  const TempFolder folder;
  const auto refused = [&](const std::filesystem::path& path) {
    const std::vector<std::filesystem::path> paths = {path};
    return message_of(Fault::input, [&] { find_inputs(paths); });
  };
  EXPECT_THAT(refused(folder / "none.txt"), AllOf(HasSubstr("none.txt"), HasSubstr("No such file")));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THAT(refused(folder / "empty"), AllOf(HasSubstr("empty"), HasSubstr("no text in this folder")));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refused(folder / "pipe"), AllOf(HasSubstr("pipe"), HasSubstr("regular file")));
  EXPECT_THAT(message_of(Fault::input, [] { find_inputs({}); }), HasSubstr("no text files"));
}

TEST(InputReader, GoesOnFromAnyRecordTheSame) {
  const TempFolder folder;
  const std::string text = "one\n\ftwo is long enough to be cut in two\n\f\fthree\n";
  const std::string lines = "{\"text\": \"four\"}\n\n{\"text\": \"\"}\n{\"text\": \"five is long enough to be cut\"}\n";
  const std::vector<std::filesystem::path> paths = {
      folder.write("a.txt", text), folder.write("empty.txt", ""), folder.write("b.jsonl.gz", test::gzip(lines)),
      folder.write("c.txt.zst", test::zstd(text)), folder.write("d.jsonl", lines)};
  const Inputs inputs = find_inputs(paths);
  const ReadOptions options{.piece_bytes = 16};
  struct Seen {
    std::string pieces;
    std::string file;
    int64_t place;
    bool operator==(const Seen&) const = default;
  };
  std::string scratch;
  std::vector<Piece> pieces;
  const auto read = [&](Position from, std::vector<Position>* positions) {
    InputReader reader(inputs.files, options, from);
    std::vector<Seen> all;
    for (Record record; reader.next(record);) {
      record_pieces(record, options, scratch, pieces);
      Seen seen{"", record.input->path.filename(), record.place};
      for (const Piece& piece : pieces) seen.pieces += std::string(piece.text) + (piece.last ? "$" : "|");
      all.push_back(seen);
      if (positions != nullptr) positions->push_back(reader.position());
    }
    EXPECT_EQ(reader.stored_bytes(), inputs.bytes());
    EXPECT_EQ(reader.position(), (Position{5, 0, 0, false}));
    return all;
  };
  std::vector<Position> positions;
  const std::vector<Seen> whole = read({}, &positions);
  ASSERT_EQ(whole.size(), 16u);
  EXPECT_EQ(whole[0], (Seen{"one$", "a.txt", 0}));
  EXPECT_EQ(whole[1].pieces, "two is long|");
  EXPECT_EQ(whole[5], (Seen{"four$", "b.jsonl.gz", 1}));
  EXPECT_EQ(whole[6], (Seen{"$", "b.jsonl.gz", 3}));
  EXPECT_EQ(whole[7], (Seen{"five is long| enough to be| cut$", "b.jsonl.gz", 4}));
  for (size_t i = 0; i < positions.size(); ++i)
    EXPECT_EQ(read(positions[i], nullptr),
              std::vector<Seen>(whole.begin() + static_cast<ptrdiff_t>(i) + 1, whole.end()));
}

TEST(Inputs, EstimatesTextFromItsBeginning) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "line " + std::to_string(i) + "\n";
  const std::vector<std::filesystem::path> paths = {folder.write("a.txt", text), folder.write("a.gz", test::gzip(text)),
                                                    folder.write("a.zst", test::zstd(text))};
  for (const Input& input : find_inputs(paths).files)
    EXPECT_NEAR(static_cast<double>(estimated_text_bytes(input)), static_cast<double>(text.size()),
                0.1 * static_cast<double>(text.size()));
}

}  // namespace
}  // namespace strata::data
