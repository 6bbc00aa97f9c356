#pragma once
// Plain text as a stream of documents, in bounded memory.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/text_window.h"

namespace strata::data {

/// Where one document ends and the next begins; the end of a file always ends one. Whitespace around a document (whole
/// blank lines before, all of it behind) is dropped, and documents of nothing else are skipped.
enum class DocumentRule : uint8_t {
  form_feed,   ///< at each form feed character (U+000C)
  blank_line,  ///< at each run of blank lines (none of them longer than a piece)
  line,        ///< at each line end
};

/// Where to cut text that is too long for a piece: at most `piece_bytes` from its beginning (there must be more text than
/// that), in the second half of the piece: behind the last blank line there, else behind the last line end, else before
/// the last space, else between two characters.
size_t piece_cut(std::string_view text, size_t piece_bytes);

/// Where reading of a text stands between two pieces. What comes from there on does not depend on what was read before.
struct TextPlace {
  int64_t offset = 0;   ///< of the next unread byte of the (uncompressed) text
  bool inside = false;  ///< whether a document goes on there
  bool operator==(const TextPlace&) const = default;
};

/// One file's documents, in pieces of at most `piece_bytes`; the pieces of a document join to its exact text.
class TextReader {
 public:
  struct Piece {
    std::string_view text;  ///< valid until the next call
    int64_t offset = 0;     ///< of its first byte in the text
    bool last = true;       ///< whether the document ends with it; a last piece may be empty
  };

  /// Goes on from `from`. `block_bytes`: how much is read at a time; it changes nothing that comes out.
  TextReader(std::unique_ptr<ByteSource> source, DocumentRule rule, int64_t piece_bytes, TextPlace from = {},
             size_t block_bytes = size_t{1} << 18);

  /// The next piece; false at the end of the file. Throws what ByteSource throws, and input errors for what is no text.
  bool next(Piece& piece);

  TextPlace place() const { return {window_.place(), inside_}; }
  const ByteSource& source() const { return *window_.source; }
  /// Form feeds with nothing but whitespace before them.
  int64_t empty_documents() const { return empty_documents_; }

 private:
  struct Separator {
    size_t begin, end;  // in buffer_
    bool found;         // if not, none begins before `begin`
  };
  Separator find_separator();

  TextWindow window_;  // `searched`: no separator starts before it
  DocumentRule rule_;
  size_t piece_bytes_;
  bool ended_ = false;
  bool inside_ = false;  // a piece of the current document was handed out
  int64_t empty_documents_ = 0;
};

}  // namespace strata::data
