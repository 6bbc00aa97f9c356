#include "data/megatron.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace strata::data {

static_assert(std::endian::native == std::endian::little, "the files are little-endian and read in place");

namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);
constexpr uint64_t version = 1;
constexpr int64_t header_bytes = 34;
constexpr size_t buffer_bytes = size_t{1} << 20;

template <typename T>
T load(std::span<const std::byte> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

uint8_t code_of(DType type) {
  switch (type) {
    case DType::u8: return 1;
    case DType::i8: return 2;
    case DType::i16: return 3;
    case DType::i32: return 4;
    case DType::i64: return 5;
    case DType::u16: return 8;
    default: STRATA_CHECK(false, "no token type: {}", name_of(type)); return 0;
  }
}

DType dtype_of(uint8_t code, const std::string& file) {
  for (const DType type : {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64, DType::u16})
    if (code_of(type) == code) return type;
  if (code == 6 || code == 7)
    throw input_error("{}: element type {} is a float type; token ids are integers", file, code);
  throw input_error("{}: unknown element type {} (1 to 5 and 8 are the integer types)", file, code);
}

template <typename T>
int64_t widen(std::span<const std::byte> bytes, int64_t vocab, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const T id = load<T>(bytes, static_cast<int64_t>(i * sizeof(T)));
    if (static_cast<int64_t>(id) < 0 || static_cast<int64_t>(id) >= vocab) return static_cast<int64_t>(i);
    out[i] = static_cast<int32_t>(id);
  }
  return -1;
}

// Index of the first id outside [0, vocab), or -1.
int64_t widen(DType type, std::span<const std::byte> bytes, int64_t vocab, std::span<int32_t> out) {
  switch (type) {
    case DType::u8: return widen<uint8_t>(bytes, vocab, out);
    case DType::i8: return widen<int8_t>(bytes, vocab, out);
    case DType::u16: return widen<uint16_t>(bytes, vocab, out);
    case DType::i16: return widen<int16_t>(bytes, vocab, out);
    case DType::i32: return widen<int32_t>(bytes, vocab, out);
    case DType::i64: return widen<int64_t>(bytes, vocab, out);
    default: return 0;
  }
}

int64_t load_id(DType type, std::span<const std::byte> bytes) {
  switch (type) {
    case DType::u8: return load<uint8_t>(bytes, 0);
    case DType::i8: return load<int8_t>(bytes, 0);
    case DType::u16: return load<uint16_t>(bytes, 0);
    case DType::i16: return load<int16_t>(bytes, 0);
    case DType::i32: return load<int32_t>(bytes, 0);
    default: return load<int64_t>(bytes, 0);
  }
}

}  // namespace

std::filesystem::path dataset_prefix(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension != ".bin" && extension != ".idx") return path;
  return path.parent_path() / path.stem();
}

std::filesystem::path bin_path(const std::filesystem::path& prefix) { return prefix.string() + ".bin"; }
std::filesystem::path idx_path(const std::filesystem::path& prefix) { return prefix.string() + ".idx"; }

MegatronIndex::MegatronIndex(std::span<const std::byte> idx, int64_t bin_bytes, const std::filesystem::path& prefix)
    : bytes_(idx) {
  const std::string file = idx_path(prefix).string();
  const auto size = static_cast<int64_t>(idx.size());
  const std::string_view start(reinterpret_cast<const char*>(idx.data()), std::min(idx.size(), magic.size()));
  if (start.starts_with("TNTIDX"))
    throw input_error("{}: the older \"cached\" (TNTIDX) form of dataset, which is not read: build it again", file);
  if (start != magic.substr(0, start.size()) || start.empty())
    throw input_error("{}: not a Megatron index: it does not begin with MMIDIDX{}", file,
                      size == 0 ? " (it is empty)" : "");
  if (size < header_bytes)
    throw input_error("{}: truncated: {} bytes, and the header alone has {}", file, size, header_bytes);
  if (const auto found = load<uint64_t>(idx, 9); found != version)
    throw input_error("{}: version {} of the index; only version {} is known", file, found, version);
  dtype_ = dtype_of(load<uint8_t>(idx, 17), file);
  const auto sequences = load<uint64_t>(idx, 18), entries = load<uint64_t>(idx, 26);
  // Bounded by the file's size before they are multiplied.
  const auto room = static_cast<uint64_t>(size - header_bytes);
  if (sequences > room / 12 || entries > (room - 12 * sequences) / 8)
    throw input_error(
        "{}: truncated or damaged: {} sequences and {} document entries need {:.0f} bytes, the file has {}", file,
        sequences, entries,
        static_cast<double>(header_bytes) + 12.0 * static_cast<double>(sequences) + 8.0 * static_cast<double>(entries),
        size);
  sequences_ = static_cast<int64_t>(sequences);
  entries_ = static_cast<int64_t>(entries);
  const int64_t expected = header_bytes + 12 * sequences_ + 8 * entries_;
  if (size == expected + sequences_ && sequences_ > 0)
    throw input_error("{}: a multimodal dataset (the index ends with a mode for each sequence); only text is read",
                      file);
  if (size != expected)
    throw input_error("{}: {} sequences and {} document entries need {} bytes, the file has {}", file, sequences,
                      entries, expected, size);

  const int64_t item = size_of(dtype_);
  int64_t at = 0;
  for (int64_t i = 0; i < sequences_; ++i) {
    const int64_t length = sequence_length(i), pointer = load<int64_t>(bytes_, header_bytes + 4 * sequences_ + 8 * i);
    if (length < 0) throw input_error("{}: sequence {} has length {}", file, i, length);
    if (pointer != at)
      throw input_error("{}: sequence {} begins at byte {}, expected {} (sequences follow each other without gaps)",
                        file, i, pointer, at);
    if (length * item > std::numeric_limits<int64_t>::max() - at)
      throw input_error("{}: the lengths up to sequence {} add up to more bytes than a file can have", file, i);
    at += length * item;
  }
  if (at != bin_bytes)
    throw input_error("{}: has {} bytes, and its index {} says {} ({} tokens of {} bytes): {}",
                      bin_path(prefix).string(), bin_bytes, file, at, at / item, item,
                      bin_bytes < at ? "it is truncated, or the two files do not belong together"
                                     : "the two files do not belong together");
  tokens_ = at / item;

  int64_t before = 0;
  for (int64_t i = 0; i < entries_; ++i) {
    const int64_t value = entry(i);
    if (i == 0 && value != 0) throw input_error("{}: the document index begins with {}, expected 0", file, value);
    if (value < before || value > sequences_)
      throw input_error("{}: document entry {} is {}, expected a number from {} to {}", file, i, value, before,
                        sequences_);
    before = value;
  }
  documents_ = std::max<int64_t>(entries_ - 1, 0) + (before < sequences_ ? 1 : 0);
}

int64_t MegatronIndex::entry(int64_t index) const {
  return load<int64_t>(bytes_, header_bytes + 12 * sequences_ + 8 * index);
}

int64_t MegatronIndex::sequence_length(int64_t sequence) const {
  return load<int32_t>(bytes_, header_bytes + 4 * sequence);
}

int64_t MegatronIndex::sequence_begin(int64_t sequence) const {
  STRATA_CHECK(sequence >= 0 && sequence <= sequences_);
  if (sequence == sequences_) return tokens_;
  return load<int64_t>(bytes_, header_bytes + 4 * sequences_ + 8 * sequence) / size_of(dtype_);
}

int64_t MegatronIndex::document_begin(int64_t document) const {
  STRATA_CHECK(document >= 0 && document <= documents_);
  if (document == 0) return 0;
  return document < entries_ ? sequence_begin(entry(document)) : tokens_;
}

namespace {

const std::filesystem::path& existing(const std::filesystem::path& prefix) {
  std::error_code error;
  if (!std::filesystem::exists(idx_path(prefix), error) && !std::filesystem::exists(bin_path(prefix), error))
    throw input_error("{}: no such dataset ({}.idx and {}.bin are missing); build one with: strata data build",
                      prefix.string(), prefix.string(), prefix.string());
  return prefix;
}

}  // namespace

MegatronFile::MegatronFile(const std::filesystem::path& prefix)
    : prefix_(existing(dataset_prefix(prefix))),
      idx_(idx_path(prefix_)),
      bin_(bin_path(prefix_)),
      index_(idx_.bytes(), static_cast<int64_t>(bin_.bytes().size()), prefix_) {}

void MegatronFile::read(int64_t first, int64_t vocab, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  STRATA_CHECK(first >= 0 && count <= tokens() && first <= tokens() - count, "tokens {} + {} of {}", first, count,
               tokens());
  const auto item = static_cast<size_t>(size_of(index_.dtype()));
  const auto bytes = bin_.bytes().subspan(static_cast<size_t>(first) * item, out.size() * item);
  const int64_t bound = std::min<int64_t>(vocab, int64_t{std::numeric_limits<int32_t>::max()} + 1);
  const int64_t bad = widen(index_.dtype(), bytes, bound, out);
  if (bad < 0) return;
  throw input_error(
      "{}: token {} has id {}, and the vocabulary has ids 0 to {}: another tokenizer made this dataset, or model.vocab "
      "is too small",
      bin_path(prefix_).string(), first + bad, load_id(index_.dtype(), bytes.subspan(static_cast<size_t>(bad) * item)),
      bound - 1);
}

int32_t MegatronFile::check_ids(int64_t vocab) const {
  std::vector<int32_t> part(size_t{1} << 16);
  int32_t largest = -1;
  for (int64_t at = 0; at < tokens(); at += static_cast<int64_t>(part.size())) {
    const auto count = static_cast<size_t>(std::min(tokens() - at, static_cast<int64_t>(part.size())));
    read(at, vocab, std::span(part).first(count));
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, part[i]);
  }
  return largest;
}

DType token_dtype(int64_t vocab) { return vocab < 65500 ? DType::u16 : DType::i32; }

// Numbers kept in a nameless file beside the dataset until the index can be written: memory stays bounded, and nothing
// is left behind however the program ends.
class MegatronWriter::Spill {
 public:
  Spill(const std::filesystem::path& prefix, size_t item) : name_(prefix.string() + ".index"), item_(item) {
    std::string name = fmt::format("{}.partial-XXXXXX", name_);
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) throw run_error("{}: cannot create: {}", name_, std::strerror(errno));
    ::unlink(name.c_str());
  }
  Spill(const Spill&) = delete;
  Spill& operator=(const Spill&) = delete;
  ~Spill() { ::close(descriptor_); }

  template <typename T>
  void add(T value) {
    append(buffer_, value);
    if (buffer_.size() >= buffer_bytes) flush();
  }

  // Calls `take` with whole items, in order.
  template <typename Take>
  void read(Take take) {
    flush();
    std::vector<std::byte> part(buffer_bytes / item_ * item_);
    for (off_t at = 0;;) {
      size_t held = 0;
      while (held < part.size()) {
        const ssize_t got = ::pread(descriptor_, part.data() + held, part.size() - held, at + static_cast<off_t>(held));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw run_error("{}: cannot read back: {}", name_, std::strerror(errno));
        if (got == 0) break;
        held += static_cast<size_t>(got);
      }
      if (held == 0) return;
      take(std::span<const std::byte>(part).first(held));
      at += static_cast<off_t>(held);
    }
  }

 private:
  void flush() {
    std::string_view rest = buffer_;
    while (!rest.empty()) {
      const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw run_error("{}: cannot write: {}", name_, std::strerror(errno));
      rest.remove_prefix(static_cast<size_t>(written));
    }
    buffer_.clear();
  }

  std::string name_;
  size_t item_;
  int descriptor_ = -1;
  std::string buffer_;
};

MegatronWriter::MegatronWriter(const std::filesystem::path& prefix, DType dtype)
    : prefix_(dataset_prefix(prefix)),
      dtype_(dtype),
      bin_(bin_path(prefix_)),
      idx_(idx_path(prefix_)),
      lengths_(std::make_unique<Spill>(prefix_, sizeof(int32_t))),
      borders_(std::make_unique<Spill>(prefix_, sizeof(int64_t))) {
  code_of(dtype);
  borders_->add(int64_t{0});
}

MegatronWriter::~MegatronWriter() = default;

void MegatronWriter::add(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw input_error("{}: a sequence of {} tokens is longer than the format can say", bin_path(prefix_).string(),
                      ids.size());
  for (const int32_t id : ids) {
    const auto put = [&]<typename T>(T value) {
      if (static_cast<int64_t>(value) != id || id < 0)
        throw input_error("{}: token id {} does not fit elements of type {}", bin_path(prefix_).string(), id,
                          name_of(dtype_));
      append(buffer_, value);
    };
    switch (dtype_) {
      case DType::u8: put(static_cast<uint8_t>(id)); break;
      case DType::i8: put(static_cast<int8_t>(id)); break;
      case DType::u16: put(static_cast<uint16_t>(id)); break;
      case DType::i16: put(static_cast<int16_t>(id)); break;
      case DType::i32: put(id); break;
      default: put(static_cast<int64_t>(id)); break;
    }
  }
  if (buffer_.size() >= buffer_bytes) flush_tokens();
  lengths_->add(static_cast<int32_t>(ids.size()));
  ++sequences_;
  tokens_ += static_cast<int64_t>(ids.size());
}

void MegatronWriter::end_document() {
  if (sequences_ == document_start_) {
    ++empty_documents_;
    return;
  }
  borders_->add(sequences_);
  document_start_ = sequences_;
  ++documents_;
}

void MegatronWriter::flush_tokens() {
  bin_.write(buffer_);
  buffer_.clear();
}

void MegatronWriter::write_index() {
  std::string part(magic);
  append(part, version);
  append(part, code_of(dtype_));
  append(part, static_cast<uint64_t>(sequences_));
  append(part, static_cast<uint64_t>(documents_ + 1));
  idx_.write(part);
  const auto copy = [&](std::span<const std::byte> bytes) { idx_.write(bytes); };
  lengths_->read(copy);
  int64_t at = 0;
  lengths_->read([&](std::span<const std::byte> bytes) {
    part.clear();
    for (size_t i = 0; i < bytes.size(); i += sizeof(int32_t)) {
      append(part, at);
      at += load<int32_t>(bytes, static_cast<int64_t>(i)) * size_of(dtype_);
    }
    idx_.write(part);
  });
  borders_->read(copy);
}

void MegatronWriter::finish() {
  if (finished_) return;
  if (sequences_ != document_start_) end_document();
  flush_tokens();
  write_index();
  finished_ = true;
}

void MegatronWriter::commit() {
  finish();
  std::error_code error;
  std::filesystem::remove(idx_path(prefix_), error);
  if (error) throw run_error("{}: cannot replace: {}", idx_path(prefix_).string(), error.message());
  bin_.commit();
  try {
    idx_.commit();
  } catch (...) {
    std::filesystem::remove(bin_path(prefix_), error);
    throw;
  }
}

}  // namespace strata::data
