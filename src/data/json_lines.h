#pragma once
// JSON lines: a JSON object a line, one of whose members is a document's text.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/text_window.h"

namespace strata::data {

/// Where reading of lines stands.
struct LinePlace {
  int64_t offset = 0;  ///< of the next unread byte of the (uncompressed) text
  int64_t line = 0;    ///< how many lines come before it
  bool operator==(const LinePlace&) const = default;
};

/// The lines of a text, each whole; memory is bounded by the longest line. Lines of nothing but whitespace are passed over.
class LineReader {
 public:
  struct Line {
    std::string_view text;  ///< without its end; valid until the next call
    int64_t number = 0;     ///< from 1
  };

  /// Goes on from `from`. `block_bytes` changes nothing that comes out.
  explicit LineReader(std::unique_ptr<ByteSource> source, LinePlace from = {}, size_t block_bytes = size_t{1} << 18);

  /// The next line; false at the end of the file. Throws what ByteSource throws, and input errors for a line of more than
  /// longest_line bytes and for what is no text.
  bool next(Line& line);

  LinePlace place() const { return {window_.place(), lines_}; }
  const ByteSource& source() const { return *window_.source; }

  static constexpr int64_t longest_line = int64_t{1} << 30;

 private:
  bool more();
  TextWindow window_;  // `searched`: no line ends before it
  int64_t lines_ = 0;
};

/// The string under `key` of the object in `line`, escapes resolved. Throws an input error that opens with "FILE:NUMBER"
/// where the line is no JSON object (syntax, column named), and where the key is missing, there twice, or no string.
std::string json_text(std::string_view line, std::string_view key, std::string_view file, int64_t number);

}  // namespace strata::data
