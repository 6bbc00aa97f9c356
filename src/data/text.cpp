#include "data/text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace strata::data {

namespace {

constexpr std::string_view whitespace = " \t\r\n\f\v";
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

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
    : source_(std::move(source)),
      rule_(rule),
      piece_bytes_(static_cast<size_t>(piece_bytes)),
      block_bytes_(block_bytes),
      buffer_offset_(from.offset),
      inside_(from.inside) {
  if (piece_bytes < 16) throw input_error("pieces of {} bytes are too short: at least 16", piece_bytes);
  if (from.offset > 0) {
    source_->skip(from.offset);
    return;
  }
  while (buffer_.size() < 300 && fill()) {
  }
  refuse_foreign(source_->path(), buffer_);
  if (buffer_.starts_with(byte_order_mark)) begin_ = searched_ = byte_order_mark.size();
}

// Reads on behind what is unread; false at the end of the text.
bool TextReader::fill() {
  if (at_end_) return false;
  buffer_.erase(0, begin_);
  buffer_offset_ += static_cast<int64_t>(begin_);
  searched_ -= begin_;
  begin_ = 0;
  const size_t held = buffer_.size();
  buffer_.resize(held + block_bytes_);
  const size_t got = source_->read(std::span(buffer_).subspan(held));
  buffer_.resize(held + got);
  at_end_ = got < block_bytes_;
  return got > 0;
}

TextReader::Separator TextReader::find_separator() {
  const char mark = rule_ == DocumentRule::form_feed ? '\f' : '\n';
  for (size_t at = searched_;; ++at) {
    at = buffer_.find(mark, at);
    if (at == std::string::npos) break;
    if (rule_ != DocumentRule::blank_line) return {at, at + 1, true};
    // A blank line is no longer than a piece, or it could not be told from the text's beginning alone.
    const size_t behind = std::min(buffer_.find_first_not_of(" \t\r", at + 1), buffer_.size());
    if (behind - at > piece_bytes_) continue;
    if (behind == buffer_.size()) {  // may go on in the next block
      searched_ = at;
      return {at, at, false};
    }
    if (buffer_[behind] == '\n') return {at, behind + 1, true};
  }
  searched_ = buffer_.size();
  return {searched_, searched_, false};
}

bool TextReader::next(Piece& piece) {
  while (!ended_) {
    if (!inside_) {
      // Blank lines before a document; the indentation of its first line stays.
      const size_t text = std::min(buffer_.find_first_not_of(whitespace, begin_), buffer_.size());
      const size_t limit = std::min(text, find_separator().begin);
      const size_t line = limit == 0 ? std::string::npos : buffer_.rfind('\n', limit - 1);
      if (line != std::string::npos && line >= begin_) {
        begin_ = line + 1;
        searched_ = std::max(searched_, begin_);
      }
    }
    const Separator separator = find_separator();
    if (separator.begin - begin_ > piece_bytes_) {
      const size_t length = piece_cut(std::string_view(buffer_).substr(begin_), piece_bytes_);
      piece = {std::string_view(buffer_).substr(begin_, length), buffer_offset_ + static_cast<int64_t>(begin_), false};
      begin_ += length;
      searched_ = std::max(searched_, begin_);
      const bool blank = piece.text.find_first_not_of(whitespace) == std::string_view::npos;
      if (!inside_ && blank) continue;
      inside_ = true;
      return true;
    }
    if (!separator.found && fill()) continue;
    const size_t end = separator.found ? separator.begin : buffer_.size();
    std::string_view text = std::string_view(buffer_).substr(begin_, end - begin_);
    text = text.substr(0, text.find_last_not_of(whitespace) + 1);
    piece = {text, buffer_offset_ + static_cast<int64_t>(begin_), true};
    const bool whole = !inside_;
    inside_ = false;
    if (separator.found) {
      begin_ = searched_ = separator.end;
    } else {
      begin_ = searched_ = buffer_.size();
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
