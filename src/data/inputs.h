#pragma once
// Which files a dataset is made of, and their texts as one stream of records.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/json_lines.h"
#include "data/text.h"

namespace strata::data {

enum class Format : uint8_t { text, json_lines };

struct Input {
  std::filesystem::path path;
  Format format = Format::text;
  int64_t bytes = 0;     ///< on disk
  int64_t modified = 0;  ///< nanoseconds since 1970
  bool operator==(const Input&) const = default;
};

struct Inputs {
  std::vector<Input> files;
  int64_t left_out = 0;  ///< files in folders whose names do not end as text does
  int64_t bytes() const;
};

/// The files given, in the order given. A folder stands for all files in it and below it whose names end with .txt,
/// .text, .jsonl, .ndjson or .json, .gz or .zst behind that or not, in the order of their paths' bytes; hidden ones are
/// passed over. `.jsonl`, `.ndjson` and `.json` are JSON lines and every other name is text, unless `format` says so
/// for all. Throws an input error for what is neither a regular file nor a folder with such files.
Inputs find_inputs(std::span<const std::filesystem::path> paths, std::optional<Format> format = std::nullopt);

struct ReadOptions {
  DocumentRule rule = DocumentRule::form_feed;  ///< of plain text
  int64_t piece_bytes = 16384;
  std::string json_key = "text";
};

/// A document or a piece of one, of plain text; a line, of JSON lines.
struct Record {
  std::string_view text;         ///< valid until the next call
  const Input* input = nullptr;  ///< where it stands
  int64_t place = 0;             ///< byte of the (uncompressed) text, from 0; of JSON lines the line's number, from 1
  bool last = true;              ///< whether the document ends with it
};

/// Where reading stands between two records.
struct Position {
  int64_t file = 0;    ///< index of the input
  int64_t offset = 0;  ///< in its text
  int64_t line = 0;    ///< lines before it, of JSON lines
  bool inside = false;
  bool operator==(const Position&) const = default;
};

/// All inputs as one stream, from any position on.
class InputReader {
 public:
  InputReader(std::vector<Input> inputs, ReadOptions options, Position from = {});
  ~InputReader();

  /// The next record; false at the end. Throws input errors for what is wrong with a file, one that has another size than
  /// it had included.
  bool next(Record& record);

  Position position() const;
  const std::vector<Input>& inputs() const { return inputs_; }
  int64_t stored_bytes() const;     ///< of the inputs, used so far, those before the first position included
  int64_t empty_documents() const;  ///< of plain text, since the first position

 private:
  void open();
  void close();
  std::vector<Input> inputs_;
  ReadOptions options_;
  Position from_;
  std::unique_ptr<TextReader> text_;
  std::unique_ptr<LineReader> lines_;
  int64_t stored_before_ = 0, empty_before_ = 0;
};

/// A piece of a document's text, ready for a tokenizer.
struct Piece {
  std::string_view text;
  bool last = true;
};

/// The pieces of a record, one after another: text that is plain as it is, the text of a JSON line cut like the other. An
/// empty document gives one empty last piece. `scratch` holds what the pieces view.
void record_pieces(const Record& record, const ReadOptions& options, std::string& scratch, std::vector<Piece>& pieces);

/// About how many bytes of text an input holds: its size, or, of a compressed one, its size times the ratio of its
/// beginning. A function of the file alone.
int64_t estimated_text_bytes(const Input& input);

}  // namespace strata::data
