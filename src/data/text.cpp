#include "data/text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace strata::data {

namespace {

constexpr std::string_view whitespace = " \t\r\n\f\v";

bool continues_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

size_t piece_cut(std::string_view text, size_t piece_bytes) {
  const std::string_view window = text.substr(0, piece_bytes);
  const size_t half = window.size() / 2;
  for (const std::string_view mark : {"\n\n", "\n", " "}) {
    const size_t at = window.rfind(mark);
    // A space opens the next piece, as it opens a word for the tokenizer; line ends stay behind.
    if (at != std::string_view::npos && at >= half) return at + (mark == " " ? 0 : mark.size());
  }
  size_t at = window.size();
  while (at > window.size() - 4 && continues_character(text[at])) --at;
  return continues_character(text[at]) ? window.size() : at;
}

TextReader::TextReader(std::unique_ptr<ByteSource> source, DocumentRule rule, int64_t piece_bytes, TextPlace from,
                       size_t block_bytes)
    : window_(std::move(source), from.offset, block_bytes),
      rule_(rule),
      piece_bytes_(static_cast<size_t>(piece_bytes)),
      inside_(from.inside) {
  if (piece_bytes < 16) throw input_error("pieces of {} bytes are too short: at least 16", piece_bytes);
}

TextReader::Separator TextReader::find_separator() {
  const char mark = rule_ == DocumentRule::form_feed ? '\f' : '\n';
  for (size_t at = window_.searched;; ++at) {
    at = window_.buffer.find(mark, at);
    if (at == std::string::npos) break;
    if (rule_ != DocumentRule::blank_line) return {at, at + 1, true};
    // A blank line is no longer than a piece, or it could not be told from the text's beginning alone.
    const size_t behind = std::min(window_.buffer.find_first_not_of(" \t\r", at + 1), window_.buffer.size());
    if (behind - at > piece_bytes_) continue;
    if (behind == window_.buffer.size()) {  // may go on in the next block
      window_.searched = at;
      return {at, at, false};
    }
    if (window_.buffer[behind] == '\n') return {at, behind + 1, true};
  }
  window_.searched = window_.buffer.size();
  return {window_.searched, window_.searched, false};
}

bool TextReader::next(Piece& piece) {
  while (!ended_) {
    if (!inside_) {
      // Blank lines before a document; the indentation of its first line stays.
      const size_t text = std::min(window_.buffer.find_first_not_of(whitespace, window_.begin), window_.buffer.size());
      const size_t limit = std::min(text, find_separator().begin);
      const size_t line = limit == 0 ? std::string::npos : window_.buffer.rfind('\n', limit - 1);
      if (line != std::string::npos && line >= window_.begin) {
        window_.begin = line + 1;
        window_.searched = std::max(window_.searched, window_.begin);
      }
    }
    const Separator separator = find_separator();
    if (separator.begin - window_.begin > piece_bytes_) {
      const size_t length = piece_cut(std::string_view(window_.buffer).substr(window_.begin), piece_bytes_);
      piece = {std::string_view(window_.buffer).substr(window_.begin, length), window_.place(), false};
      window_.begin += length;
      window_.searched = std::max(window_.searched, window_.begin);
      const bool blank = piece.text.find_first_not_of(whitespace) == std::string_view::npos;
      if (!inside_ && blank) continue;
      inside_ = true;
      return true;
    }
    if (!separator.found && window_.fill()) continue;
    const size_t end = separator.found ? separator.begin : window_.buffer.size();
    std::string_view text = std::string_view(window_.buffer).substr(window_.begin, end - window_.begin);
    text = text.substr(0, text.find_last_not_of(whitespace) + 1);
    piece = {text, window_.place(), true};
    const bool whole = !inside_;
    inside_ = false;
    if (separator.found) {
      window_.begin = window_.searched = separator.end;
    } else {
      window_.begin = window_.searched = window_.buffer.size();
      ended_ = true;
    }
    if (whole && text.empty()) {
      // What follows a file's last separator is no document, nor is a blank line one that was left empty.
      if (separator.found && rule_ == DocumentRule::form_feed) ++empty_documents_;
      continue;
    }
    return true;
  }
  return false;
}

}  // namespace strata::data
