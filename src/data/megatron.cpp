#include "data/megatron.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/atomic_file.h"

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
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
T load_at(const files::RandomFile& file, int64_t offset) {
  T value;
  file.read(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

// An array of a file, a block at a time: near neighbours of what was asked for last cost no call.
template <typename T, size_t block>
class Column {
 public:
  Column(const files::RandomFile& file, int64_t offset, int64_t size) : file_(file), offset_(offset), size_(size) {}
  T operator[](int64_t index) {
    if (index < first_ || index >= first_ + held_) {
      first_ = index;
      held_ = std::min<int64_t>(size_ - index, static_cast<int64_t>(block));
      file_.read(offset_ + index * static_cast<int64_t>(sizeof(T)),
                 std::as_writable_bytes(std::span(values_).first(static_cast<size_t>(held_))));
    }
    return values_[static_cast<size_t>(index - first_)];
  }

 private:
  const files::RandomFile& file_;
  int64_t offset_, size_, first_ = 0, held_ = 0;
  std::array<T, block> values_;
};

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

MegatronIndex::MegatronIndex(files::RandomFile idx, int64_t bin_bytes, const std::filesystem::path& prefix)
    : file_(std::move(idx)) {
  const std::string file = idx_path(prefix).string();
  const int64_t size = file_.size();
  std::array<std::byte, header_bytes> header{};
  file_.read(0, std::span(header).first(static_cast<size_t>(std::min<int64_t>(size, header_bytes))));
  const std::string_view start(reinterpret_cast<const char*>(header.data()),
                               std::min(static_cast<size_t>(size), magic.size()));
  if (start.starts_with("TNTIDX"))
    throw input_error("{}: the older \"cached\" (TNTIDX) form of dataset, which is not read: build it again", file);
  if (start != magic.substr(0, start.size()) || start.empty())
    throw input_error("{}: not a Megatron index: it does not begin with MMIDIDX{}", file,
                      size == 0 ? " (it is empty)" : "");
  if (size < header_bytes)
    throw input_error("{}: truncated: {} bytes, and the header alone has {}", file, size, header_bytes);
  if (const auto found = load<uint64_t>(header, 9); found != version)
    throw input_error("{}: version {} of the index; only version {} is known", file, found, version);
  dtype_ = dtype_of(load<uint8_t>(header, 17), file);
  const auto sequences = load<uint64_t>(header, 18), entries = load<uint64_t>(header, 26);
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

  // All that follows from sums is 64 bits wide; blocks keep memory small however long the index is.
  const int64_t item = size_of(dtype_);
  std::vector<int32_t> lengths(detail::index_block);
  std::vector<int64_t> values(detail::index_block);
  int64_t at = 0;
  for (int64_t first = 0; first < sequences_; first += static_cast<int64_t>(lengths.size())) {
    const auto count = static_cast<size_t>(std::min(sequences_ - first, static_cast<int64_t>(lengths.size())));
    file_.read(header_bytes + 4 * first, std::as_writable_bytes(std::span(lengths).first(count)));
    file_.read(header_bytes + 4 * sequences_ + 8 * first, std::as_writable_bytes(std::span(values).first(count)));
    for (size_t i = 0; i < count; ++i) {
      const int64_t sequence = first + static_cast<int64_t>(i), length = lengths[i];
      if (length < 0) throw input_error("{}: sequence {} has length {}", file, sequence, length);
      if (values[i] != at)
        throw input_error("{}: sequence {} begins at byte {}, expected {} (sequences follow each other without gaps)",
                          file, sequence, values[i], at);
      if (length * item > std::numeric_limits<int64_t>::max() - at)
        throw input_error("{}: the lengths up to sequence {} add up to more bytes than a file can have", file,
                          sequence);
      at += length * item;
    }
  }
  if (at != bin_bytes)
    throw input_error("{}: has {} bytes, and its index {} says {} ({} tokens of {} bytes): {}",
                      bin_path(prefix).string(), bin_bytes, file, at, at / item, item,
                      bin_bytes < at ? "it is truncated, or the two files do not belong together"
                                     : "the two files do not belong together");
  tokens_ = at / item;

  int64_t before = 0;
  for (int64_t first = 0; first < entries_; first += static_cast<int64_t>(values.size())) {
    const auto count = static_cast<size_t>(std::min(entries_ - first, static_cast<int64_t>(values.size())));
    file_.read(header_bytes + 12 * sequences_ + 8 * first, std::as_writable_bytes(std::span(values).first(count)));
    if (first == 0 && values[0] != 0)
      throw input_error("{}: the document index begins with {}, expected 0", file, values[0]);
    for (size_t i = 0; i < count; ++i) {
      if (values[i] < before || values[i] > sequences_)
        throw input_error("{}: document entry {} is {}, expected a number from {} to {}", file,
                          first + static_cast<int64_t>(i), values[i], before, sequences_);
      before = values[i];
    }
  }
  documents_ = std::max<int64_t>(entries_ - 1, 0) + (before < sequences_ ? 1 : 0);
  stride_ = std::max<int64_t>(divide_up(documents_, 4096), 1);
  for (int64_t document = 0; document == 0 || document < documents_; document += stride_)
    landmarks_.push_back(document_begin(document));
}

int64_t MegatronIndex::entry(int64_t index) const {
  return load_at<int64_t>(file_, header_bytes + 12 * sequences_ + 8 * index);
}

int64_t MegatronIndex::sequence_length(int64_t sequence) const {
  STRATA_CHECK(sequence >= 0 && sequence < sequences_);
  return load_at<int32_t>(file_, header_bytes + 4 * sequence);
}

int64_t MegatronIndex::sequence_begin(int64_t sequence) const {
  STRATA_CHECK(sequence >= 0 && sequence <= sequences_);
  if (sequence == sequences_) return tokens_;
  return load_at<int64_t>(file_, header_bytes + 4 * sequences_ + 8 * sequence) / size_of(dtype_);
}

int64_t MegatronIndex::document_begin(int64_t document) const {
  STRATA_CHECK(document >= 0 && document <= documents_);
  if (document == 0) return 0;
  return document < entries_ ? sequence_begin(entry(document)) : tokens_;
}

void MegatronIndex::document_starts(int64_t first, std::span<int32_t> out) const {
  STRATA_CHECK(first >= 0 && static_cast<int64_t>(out.size()) <= tokens_ - first);
  constexpr int64_t block = 256;
  Column<int64_t, block> entries(file_, header_bytes + 12 * sequences_, entries_);
  Column<int64_t, block> begins(file_, header_bytes + 4 * sequences_, sequences_);
  const int64_t item = size_of(dtype_);
  const auto begin_of = [&](int64_t document) -> int64_t {
    if (document == 0) return 0;
    const int64_t sequence = document < std::min(documents_, entries_) ? entries[document] : sequences_;
    return sequence < sequences_ ? begins[sequence] / item : tokens_;
  };
  // The last document that begins at or before `first`.
  const auto mark = std::upper_bound(landmarks_.begin(), landmarks_.end(), first);
  int64_t low = (mark - landmarks_.begin() - 1) * stride_, high = std::min(low + stride_, documents_);
  while (high - low > 1) {
    if (high - low <= block) begin_of(low);  // from here on all lies in one block
    const int64_t middle = low + (high - low) / 2;
    (begin_of(middle) <= first ? low : high) = middle;
  }
  int64_t start = 0;  // of the current document, behind `first`
  const int64_t end = first + static_cast<int64_t>(out.size());
  for (int64_t at = first, document = low + 1; at < end; ++document) {
    const int64_t until = std::clamp(begin_of(document), at, end);
    std::fill(out.begin() + (at - first), out.begin() + (until - first), static_cast<int32_t>(start));
    at = until;
    start = at - first;
  }
}

void MegatronIndex::read_lengths(int64_t first, std::span<int64_t> out) const {
  // 32-bit lengths into the upper half of the room, widened from the front.
  const auto bytes = std::as_writable_bytes(out).subspan(out.size() * sizeof(int32_t));
  file_.read(header_bytes + 4 * first, bytes);
  for (size_t i = 0; i < out.size(); ++i) out[i] = load<int32_t>(bytes, static_cast<int64_t>(4 * i));
}

void MegatronIndex::read_document_ends(int64_t first, std::span<int64_t> out) const {
  Column<int64_t, 8192> entries(file_, header_bytes + 12 * sequences_, entries_);
  Column<int64_t, 8192> begins(file_, header_bytes + 4 * sequences_, sequences_);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t document = first + static_cast<int64_t>(i) + 1;
    out[i] = tokens_;
    if (document >= std::min(documents_, entries_)) continue;
    const int64_t sequence = entries[document];
    if (sequence < sequences_) out[i] = begins[sequence] / size_of(dtype_);
  }
}

namespace {

const std::filesystem::path& existing(const std::filesystem::path& prefix) {
  std::error_code error;
  if (!std::filesystem::exists(idx_path(prefix), error) && !std::filesystem::exists(bin_path(prefix), error)) {
    if (std::filesystem::exists(prefix.string() + ".building", error))
      throw input_error(
          "{}: this dataset is not finished: {}.building holds a build that goes on, or that was stopped; the same "
          "strata data build again goes on with it",
          prefix.string(), prefix.string());
    throw input_error("{}: no such dataset ({}.idx and {}.bin are missing); build one with: strata data build",
                      prefix.string(), prefix.string(), prefix.string());
  }
  return prefix;
}

}  // namespace

MegatronFile::MegatronFile(const std::filesystem::path& prefix)
    : prefix_(existing(dataset_prefix(prefix))),
      bin_(bin_path(prefix_)),
      index_(files::RandomFile(idx_path(prefix_)), bin_.size(), prefix_) {}

void MegatronFile::read(int64_t first, int64_t vocab, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  STRATA_CHECK(first >= 0 && count <= tokens() && first <= tokens() - count, "tokens {} + {} of {}", first, count,
               tokens());
  const int64_t item = size_of(index_.dtype());
  const int64_t bound = std::min<int64_t>(vocab, int64_t{std::numeric_limits<int32_t>::max()} + 1);
  std::array<std::byte, 32768> block;
  const int64_t room = static_cast<int64_t>(block.size()) / item;
  for (int64_t done = 0; done < count; done += room) {
    const auto part = out.subspan(static_cast<size_t>(done), static_cast<size_t>(std::min(count - done, room)));
    const auto bytes = std::span(block).first(part.size() * static_cast<size_t>(item));
    bin_.read((first + done) * item, bytes);
    const int64_t bad = widen(index_.dtype(), bytes, bound, part);
    if (bad < 0) continue;
    throw input_error(
        "{}: token {} has id {}, and the vocabulary has ids 0 to {}: another tokenizer made this dataset, or "
        "model.vocab is too small",
        bin_path(prefix_).string(), first + done + bad,
        load_id(index_.dtype(), bytes.subspan(static_cast<size_t>(bad * item))), bound - 1);
  }
}

void MegatronFile::will_need(int64_t first, int64_t count) const {
  const int64_t item = size_of(index_.dtype());
  bin_.will_need(first * item, count * item);
}

DType token_dtype(int64_t vocab) { return vocab < 65500 ? DType::u16 : DType::i32; }

// A file that only grows, from a given size on.
class MegatronWriter::Log {
 public:
  // What is behind `size` is cut off.
  Log(std::filesystem::path path, int64_t size) : path_(std::move(path)), size_(size) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw run_error("{}: cannot create: {}", path_.string(), std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    const bool enough = known && static_cast<int64_t>(status.st_size) >= size;
    const bool cut = enough && ::ftruncate(descriptor_, static_cast<off_t>(size)) == 0 &&
                     ::lseek(descriptor_, static_cast<off_t>(size), SEEK_SET) >= 0;
    if (cut) return;
    const int error = errno;
    ::close(descriptor_);
    if (!known || enough) throw run_error("{}: cannot write: {}", path_.string(), std::strerror(error));
    throw input_error(
        "{}: has {} bytes, of {} that were written: this unfinished build is damaged; --restart begins anew",
        path_.string(), static_cast<int64_t>(status.st_size), size);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { ::close(descriptor_); }

  const std::filesystem::path& path() const { return path_; }
  std::string& buffer() { return buffer_; }
  void flush_full() {
    if (buffer_.size() >= buffer_bytes) flush();
  }
  template <typename T>
  void add(T value) {
    strata::data::append(buffer_, value);
    flush_full();
  }
  void sync() {
    flush();
    if (::fsync(descriptor_) != 0 && errno != EINVAL)
      throw run_error("{}: cannot flush: {}", path_.string(), std::strerror(errno));
  }

  // Calls `take` with whole items of `item` bytes, in order.
  template <typename Take>
  void read(size_t item, Take take) {
    flush();
    std::vector<std::byte> part(buffer_bytes / item * item);
    for (int64_t at = 0; at < size_;) {
      const auto bytes =
          std::span(part).first(static_cast<size_t>(std::min<int64_t>(size_ - at, static_cast<int64_t>(part.size()))));
      for (size_t held = 0; held < bytes.size();) {
        const ssize_t got = ::pread(descriptor_, bytes.data() + held, bytes.size() - held,
                                    static_cast<off_t>(at) + static_cast<off_t>(held));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
          throw run_error("{}: cannot read back: {}", path_.string(), got < 0 ? std::strerror(errno) : "it was cut");
        held += static_cast<size_t>(got);
      }
      take(std::span<const std::byte>(bytes));
      at += static_cast<int64_t>(bytes.size());
    }
  }

 private:
  void flush() {
    std::string_view rest = buffer_;
    while (!rest.empty()) {
      const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw run_error("{}: cannot write: {}", path_.string(), std::strerror(errno));
      rest.remove_prefix(static_cast<size_t>(written));
      size_ += written;
    }
    buffer_.clear();
  }

  std::filesystem::path path_;
  int64_t size_;  // written, without the buffer
  int descriptor_ = -1;
  std::string buffer_;
};

namespace {

std::filesystem::path with_ending(const std::filesystem::path& work, const char* ending) {
  return work.string() + ending;
}

std::filesystem::path temporary_name(const std::filesystem::path& prefix) {
  return fmt::format("{}.partial-{}", prefix.string(), ::getpid());
}

}  // namespace

MegatronWriter::MegatronWriter(const std::filesystem::path& prefix, DType dtype)
    : MegatronWriter(prefix, dtype, temporary_name(dataset_prefix(prefix)), {}) {
  keep_ = false;
}

MegatronWriter::MegatronWriter(const std::filesystem::path& prefix, DType dtype, const std::filesystem::path& work,
                               const Mark& from)
    : prefix_(dataset_prefix(prefix)), work_(work), dtype_(dtype), keep_(true), at_(from) {
  code_of(dtype);
  const int64_t closed = from.sequences - (from.open_length >= 0 ? 1 : 0);
  tokens_ = std::make_unique<Log>(with_ending(work_, ".tokens"), from.tokens * size_of(dtype));
  lengths_ = std::make_unique<Log>(with_ending(work_, ".lengths"), closed * static_cast<int64_t>(sizeof(int32_t)));
  borders_ =
      std::make_unique<Log>(with_ending(work_, ".borders"), from.documents * static_cast<int64_t>(sizeof(int64_t)));
}

MegatronWriter::~MegatronWriter() {
  if (!keep_ && !committed_) remove_files();
}

void MegatronWriter::remove_files() const {
  std::error_code ignored;
  for (const char* ending : {".tokens", ".lengths", ".borders", ".index"})
    std::filesystem::remove(with_ending(work_, ending), ignored);
}

template <typename T>
void MegatronWriter::put(std::span<const int32_t> ids) {
  std::string& buffer = tokens_->buffer();
  const size_t held = buffer.size();
  buffer.resize(held + ids.size() * sizeof(T));
  char* to = buffer.data() + held;
  bool fit = true;
  for (size_t i = 0; i < ids.size(); ++i) {
    const T value = static_cast<T>(ids[i]);
    fit = fit && static_cast<int64_t>(value) == ids[i] && ids[i] >= 0;
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
  if (fit) return;
  buffer.resize(held);
  for (const int32_t id : ids)
    if (id < 0 || static_cast<int64_t>(static_cast<T>(id)) != id)
      throw input_error("{}: token id {} does not fit elements of type {}", bin_path(prefix_).string(), id,
                        name_of(dtype_));
}

void MegatronWriter::put(std::span<const int32_t> ids) {
  switch (dtype_) {
    case DType::u8: put<uint8_t>(ids); break;
    case DType::i8: put<int8_t>(ids); break;
    case DType::u16: put<uint16_t>(ids); break;
    case DType::i16: put<int16_t>(ids); break;
    case DType::i32: put<int32_t>(ids); break;
    default: put<int64_t>(ids); break;
  }
  at_.tokens += static_cast<int64_t>(ids.size());
  tokens_->flush_full();
}

void MegatronWriter::close_sequence() {
  if (at_.open_length >= 0) lengths_->add(at_.open_length);
  at_.open_length = -1;
}

void MegatronWriter::add(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw input_error("{}: a sequence of {} tokens is longer than the format can say", bin_path(prefix_).string(),
                      ids.size());
  put(ids);
  close_sequence();
  at_.open_length = static_cast<int32_t>(ids.size());
  ++at_.sequences;
}

void MegatronWriter::append(int32_t id) {
  STRATA_CHECK(inside_document() && at_.open_length >= 0);
  put(std::span(&id, 1));
  ++at_.open_length;
}

void MegatronWriter::end_document() {
  if (!inside_document()) {
    ++at_.empty_documents;
    return;
  }
  close_sequence();
  borders_->add(at_.sequences);
  at_.document_start = at_.sequences;
  ++at_.documents;
}

MegatronWriter::Mark MegatronWriter::mark() {
  tokens_->sync();
  lengths_->sync();
  borders_->sync();
  return at_;
}

void MegatronWriter::write_index() {
  const std::filesystem::path path = with_ending(work_, ".index");
  Log index(path, 0);
  std::string& part = index.buffer();
  part = magic;
  strata::data::append(part, version);
  strata::data::append(part, code_of(dtype_));
  strata::data::append(part, static_cast<uint64_t>(at_.sequences));
  strata::data::append(part, static_cast<uint64_t>(at_.documents + 1));
  const auto copy = [&](std::span<const std::byte> bytes) {
    part.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    index.flush_full();
  };
  lengths_->read(sizeof(int32_t), copy);
  int64_t at = 0;
  lengths_->read(sizeof(int32_t), [&](std::span<const std::byte> bytes) {
    for (size_t i = 0; i < bytes.size(); i += sizeof(int32_t)) {
      strata::data::append(part, at);
      at += load<int32_t>(bytes, static_cast<int64_t>(i)) * size_of(dtype_);
    }
    index.flush_full();
  });
  index.add(int64_t{0});
  borders_->read(sizeof(int64_t), copy);
  index.sync();
}

void MegatronWriter::finish() {
  if (finished_) return;
  if (inside_document()) end_document();
  mark();
  write_index();
  finished_ = true;
}

void MegatronWriter::commit() {
  finish();
  commit_dataset(prefix_, work_);
  committed_ = true;
  remove_files();
}

bool commit_dataset(const std::filesystem::path& prefix, const std::filesystem::path& work) {
  namespace fs = std::filesystem;
  const fs::path tokens = with_ending(work, ".tokens"), index = with_ending(work, ".index");
  std::error_code error;
  const auto check = [&](const fs::path& path) {
    if (error) throw run_error("{}: cannot rename into place: {}", path.string(), error.message());
  };
  if (fs::exists(tokens, error)) {
    fs::remove(idx_path(prefix), error);
    check(idx_path(prefix));
    fs::rename(tokens, bin_path(prefix), error);
    check(bin_path(prefix));
  }
  if (fs::exists(index, error)) {
    fs::rename(index, idx_path(prefix), error);
    check(idx_path(prefix));
  }
  files::sync_folder(prefix.parent_path());
  return fs::exists(bin_path(prefix), error) && fs::exists(idx_path(prefix), error);
}

}  // namespace strata::data
