#include "data/text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace strata::data {

namespace {

constexpr std::string_view whitespace = " \t\r\n\f\v";
constexpr size_t chunk_bytes = size_t{1} << 18;

void refuse_foreign(const std::filesystem::path& path, std::string_view start) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 7> magics = {{
      {"\x1f\x8b", "is compressed (gzip)"},
      {"\x28\xb5\x2f\xfd", "is compressed (zstd)"},
      {"BZh", "is compressed (bzip2)"},
      {"\xfd"
       "7zXZ",
       "is compressed (xz)"},
      {"PK\x03\x04", "is a zip archive"},
      {"\xff\xfe", "is UTF-16 text"},
      {"\xfe\xff", "is UTF-16 text"},
  }};
  for (const auto& [magic, what] : magics)
    if (start.starts_with(magic)) throw input_error("{} {}: give plain UTF-8 text", path.string(), what);
  if (start.starts_with("MMIDIDX")) throw input_error("{} is the index of a built dataset, not text", path.string());
  const std::string extension = path.extension().string();
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json")
    throw input_error("{} is JSON: it cannot be read yet; give plain text", path.string());
}

}  // namespace

TextReader::TextReader(std::vector<std::filesystem::path> files, DocumentRule rule, int64_t piece_bytes)
    : files_(std::move(files)), rule_(rule), piece_bytes_(static_cast<size_t>(piece_bytes)) {
  if (piece_bytes < 16) throw input_error("pieces of {} bytes are too short: at least 16", piece_bytes);
}

void TextReader::open(const std::filesystem::path& path) {
  stream_.close();
  stream_.clear();
  errno = 0;
  stream_.open(path, std::ios::binary);
  std::error_code error;
  if (!stream_ || std::filesystem::is_directory(path, error))
    throw input_error("{}: cannot open: {}", path.string(), stream_ ? "is a folder" : std::strerror(errno));
  buffer_.clear();
  begin_ = searched_ = 0;
  buffer_offset_ = 0;
  inside_ = at_end_ = false;
  open_ = true;
  fill();
  refuse_foreign(path, buffer_);
  if (buffer_.starts_with("\xef\xbb\xbf")) begin_ = searched_ = 3;  // byte order mark
}

// Reads on behind what is unread; false at the end of the file.
bool TextReader::fill() {
  if (at_end_) return false;
  buffer_.erase(0, begin_);
  buffer_offset_ += static_cast<int64_t>(begin_);
  searched_ -= begin_;
  begin_ = 0;
  const size_t held = buffer_.size();
  buffer_.resize(held + chunk_bytes);
  stream_.read(buffer_.data() + held, static_cast<std::streamsize>(chunk_bytes));
  const size_t got = static_cast<size_t>(stream_.gcount());
  buffer_.resize(held + got);
  bytes_read_ += static_cast<int64_t>(got);
  if (stream_.bad()) throw input_error("{}: cannot read", files_[next_file_ - 1].string());
  at_end_ = got < chunk_bytes;
  return got > 0;
}

TextReader::Separator TextReader::find_separator() {
  const char mark = rule_ == DocumentRule::form_feed ? '\f' : '\n';
  for (size_t at = searched_;; ++at) {
    at = buffer_.find(mark, at);
    if (at == std::string::npos) break;
    if (rule_ != DocumentRule::blank_line) return {at, at + 1};
    const size_t behind = buffer_.find_first_not_of(" \t\r", at + 1);
    if (behind == std::string::npos) {  // may go on in the next chunk
      searched_ = at;
      return {std::string::npos, 0};
    }
    if (buffer_[behind] == '\n') return {at, behind + 1};
  }
  searched_ = buffer_.size();
  return {std::string::npos, 0};
}

size_t TextReader::cut() const {
  const std::string_view window = std::string_view(buffer_).substr(begin_, piece_bytes_);
  const size_t half = window.size() / 2;
  for (const std::string_view mark : {"\n\n", "\n", " "}) {
    const size_t at = window.rfind(mark);
    // A space opens the next piece, as it opens a word for the tokenizer; line ends stay behind.
    if (at != std::string_view::npos && at >= half) return begin_ + at + (mark == " " ? 0 : mark.size());
  }
  size_t at = window.size();
  while (at > window.size() - 4 && (static_cast<uint8_t>(buffer_[begin_ + at]) & 0xC0) == 0x80) --at;
  return begin_ + ((static_cast<uint8_t>(buffer_[begin_ + at]) & 0xC0) == 0x80 ? window.size() : at);
}

bool TextReader::next(Piece& piece) {
  while (true) {
    if (!open_) {
      if (next_file_ == files_.size()) return false;
      open(files_[next_file_++]);
    }
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
    const bool found = separator.begin != std::string::npos;
    const size_t known = found ? separator.begin : buffer_.size();
    if (known - begin_ > piece_bytes_) {
      const size_t end = cut();
      piece = {std::string_view(buffer_).substr(begin_, end - begin_), &files_[next_file_ - 1],
               buffer_offset_ + static_cast<int64_t>(begin_), false};
      begin_ = end;
      searched_ = std::max(searched_, begin_);
      const bool blank = piece.text.find_first_not_of(whitespace) == std::string_view::npos;
      if (!inside_ && blank) continue;
      inside_ = true;
      return true;
    }
    if (!found && fill()) continue;
    std::string_view text = std::string_view(buffer_).substr(begin_, known - begin_);
    text = text.substr(0, text.find_last_not_of(whitespace) + 1);
    piece = {text, &files_[next_file_ - 1], buffer_offset_ + static_cast<int64_t>(begin_), true};
    const bool whole = !inside_;
    inside_ = false;
    if (found) {
      begin_ = searched_ = separator.end;
    } else {
      open_ = false;
    }
    if (whole && text.empty()) {
      // What follows a file's last separator is no document, nor is a blank line one that was left empty.
      if (found && rule_ == DocumentRule::form_feed) ++empty_documents_;
      continue;
    }
    return true;
  }
}

}  // namespace strata::data
