#include "data/inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace strata::data {

namespace {

namespace fs = std::filesystem;

std::optional<Format> format_of(std::string_view name) {
  strip_compression(name, name);
  for (const std::string_view ending : {".jsonl", ".ndjson", ".json"})
    if (name.ends_with(ending)) return Format::json_lines;
  for (const std::string_view ending : {".txt", ".text"})
    if (name.ends_with(ending)) return Format::text;
  return std::nullopt;
}

Input regular(const fs::path& path, Format format) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw input_error("{}: cannot open: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    throw input_error(
        "{}: cannot open: is neither a regular file nor a folder (what comes through a pipe cannot be read "
        "twice: put it into a file)",
        path.string());
  return {path, format, static_cast<int64_t>(status.st_size),
          static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void add_folder(const fs::path& folder, std::optional<Format> format, Inputs& inputs) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, error), end;
  for (; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    if (path.filename().native().starts_with('.')) {
      if (at->is_directory(error)) at.disable_recursion_pending();
      continue;
    }
    if (at->is_directory(error)) continue;
    if (format_of(path.native()))
      found.push_back(path);
    else
      ++inputs.left_out;
  }
  if (error) throw input_error("{}: cannot read this folder: {}", folder.string(), error.message());
  if (found.empty())
    throw input_error(
        "{}: no text in this folder: no file whose name ends with .txt, .jsonl or one of these and .gz or .zst",
        folder.string());
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  for (const fs::path& path : found) inputs.files.push_back(regular(path, format.value_or(*format_of(path.native()))));
}

}  // namespace

int64_t Inputs::bytes() const {
  int64_t sum = 0;
  for (const Input& input : files) sum += input.bytes;
  return sum;
}

Inputs find_inputs(std::span<const fs::path> paths, std::optional<Format> format) {
  if (paths.empty()) throw input_error("no text files are given");
  Inputs inputs;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error))
      add_folder(path, format, inputs);
    else
      inputs.files.push_back(regular(path, format.value_or(format_of(path.native()).value_or(Format::text))));
  }
  return inputs;
}

InputReader::InputReader(std::vector<Input> inputs, ReadOptions options, Position from)
    : inputs_(std::move(inputs)), options_(std::move(options)), from_(from) {
  if (options_.piece_bytes < 16)
    throw input_error("pieces of {} bytes are too short: at least 16", options_.piece_bytes);
  STRATA_CHECK(from.file >= 0 && from.file <= static_cast<int64_t>(inputs_.size()));
  for (int64_t i = 0; i < from.file; ++i) stored_before_ += inputs_[static_cast<size_t>(i)].bytes;
}

InputReader::~InputReader() = default;

void InputReader::open() {
  const Input& input = inputs_[static_cast<size_t>(from_.file)];
  std::unique_ptr<ByteSource> source = ByteSource::open(input.path);
  if (input.format == Format::text)
    text_ = std::make_unique<TextReader>(std::move(source), options_.rule, options_.piece_bytes,
                                         TextPlace{from_.offset, from_.inside});
  else
    lines_ = std::make_unique<LineReader>(std::move(source), LinePlace{from_.offset, from_.line});
}

void InputReader::close() {
  const Input& input = inputs_[static_cast<size_t>(from_.file)];
  const int64_t stored = (text_ ? text_->source() : lines_->source()).stored_bytes();
  if (stored != input.bytes)
    throw input_error("{}: had {} bytes when the build began and has {} now: something changed it meanwhile",
                      input.path.string(), input.bytes, stored);
  if (text_) empty_before_ += text_->empty_documents();
  stored_before_ += input.bytes;
  text_.reset();
  lines_.reset();
  from_ = {from_.file + 1, 0, 0, false};
}

bool InputReader::next(Record& record) {
  while (from_.file < static_cast<int64_t>(inputs_.size())) {
    if (!text_ && !lines_) open();
    const Input* input = &inputs_[static_cast<size_t>(from_.file)];
    if (text_) {
      if (TextReader::Piece piece; text_->next(piece)) {
        record = {piece.text, input, piece.offset, piece.last};
        return true;
      }
    } else if (LineReader::Line line; lines_->next(line)) {
      record = {line.text, input, line.number, true};
      return true;
    }
    close();
  }
  return false;
}

Position InputReader::position() const {
  if (text_) return {from_.file, text_->place().offset, 0, text_->place().inside};
  if (lines_) return {from_.file, lines_->place().offset, lines_->place().line, false};
  return from_;
}

int64_t InputReader::stored_bytes() const {
  return stored_before_ + (text_ ? text_->source().stored_bytes() : lines_ ? lines_->source().stored_bytes() : 0);
}

int64_t InputReader::empty_documents() const { return empty_before_ + (text_ ? text_->empty_documents() : 0); }

void record_pieces(const Record& record, const ReadOptions& options, std::string& scratch, std::vector<Piece>& pieces) {
  pieces.clear();
  if (record.input->format == Format::text) {
    pieces.push_back({record.text, record.last});
    return;
  }
  scratch = json_text(record.text, options.json_key, record.input->path.native(), record.place);
  std::string_view rest = scratch;
  const auto limit = static_cast<size_t>(options.piece_bytes);
  while (rest.size() > limit) {
    const size_t length = piece_cut(rest, limit);
    pieces.push_back({rest.substr(0, length), false});
    rest.remove_prefix(length);
  }
  pieces.push_back({rest, true});
}

int64_t estimated_text_bytes(const Input& input) {
  const std::unique_ptr<ByteSource> source = ByteSource::open(input.path);
  if (!source->compressed()) return input.bytes;
  std::vector<char> beginning(size_t{4} << 20);
  const auto text = static_cast<double>(source->read(beginning));
  return static_cast<int64_t>(text / static_cast<double>(std::max<int64_t>(source->stored_bytes(), 1)) *
                              static_cast<double>(input.bytes));
}

}  // namespace strata::data
