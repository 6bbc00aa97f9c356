#pragma once
// Plain text files as a stream of documents, in bounded memory.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// Where one document ends and the next begins; the end of a file always ends one. Whitespace around a document (whole
/// blank lines before, all of it behind) is dropped, and documents of nothing else are skipped.
enum class DocumentRule {
  form_feed,   ///< at each form feed character (U+000C)
  blank_line,  ///< at each run of blank lines
  line,        ///< at each line end
};

/// A document, or a piece of one that is too long to be held whole.
struct Piece {
  std::string_view text;                        ///< valid until the next call
  const std::filesystem::path* file = nullptr;  ///< where it stands
  int64_t offset = 0;                           ///< of the text's first byte in the file
  bool last = true;                             ///< whether the document ends with it
};

class TextReader {
 public:
  /// Pieces are at most `piece_bytes` long. A longer document is cut in the second half of a piece: behind the last
  /// blank line there, else behind the last line end, else before the last space, else between two characters. Pieces
  /// of a document join to its exact text.
  TextReader(std::vector<std::filesystem::path> files, DocumentRule rule, int64_t piece_bytes);

  /// The next piece; false at the end. A last piece may be empty. Throws an input error for a file that cannot be read
  /// or is not plain text: compressed files, JSON lines and UTF-16 are refused by name.
  bool next(Piece& piece);

  int64_t bytes_read() const { return bytes_read_; }
  /// Form feeds with nothing but whitespace before them.
  int64_t empty_documents() const { return empty_documents_; }

 private:
  struct Separator {
    size_t begin, end;  // in buffer_; begin == npos: none found
  };
  void open(const std::filesystem::path& path);
  bool fill();
  Separator find_separator();
  size_t cut() const;

  std::vector<std::filesystem::path> files_;
  DocumentRule rule_;
  size_t piece_bytes_;
  size_t next_file_ = 0;
  std::ifstream stream_;
  bool open_ = false, at_end_ = false;
  std::string buffer_;
  size_t begin_ = 0;           // unread text starts here
  size_t searched_ = 0;        // no separator starts before this
  int64_t buffer_offset_ = 0;  // of buffer_[0] in the file
  bool inside_ = false;        // a piece of the current document was handed out
  int64_t bytes_read_ = 0, empty_documents_ = 0;
};

}  // namespace strata::data
