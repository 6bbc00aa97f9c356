#include "data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace strata::data {

namespace {

constexpr size_t input_bytes = size_t{1} << 18;

// A regular file, read in order.
class File {
 public:
  explicit File(const std::filesystem::path& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) throw input_error("{}: cannot open: {}", path.string(), std::strerror(errno));
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      throw input_error("{}: cannot open: {}", path.string(),
                        S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file");
    }
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  size_t read(std::span<char> out) {
    size_t held = 0;
    while (held < out.size()) {
      const ssize_t got = ::read(descriptor_, out.data() + held, out.size() - held);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw run_error("{}: cannot read: {}", path_.string(), std::strerror(errno));
      if (got == 0) break;
      held += static_cast<size_t>(got);
    }
    return held;
  }
  void seek(int64_t offset) {
    if (::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0)
      throw run_error("{}: cannot seek: {}", path_.string(), std::strerror(errno));
  }
  int64_t size() const {
    struct stat status {};
    return ::fstat(descriptor_, &status) == 0 ? static_cast<int64_t>(status.st_size) : 0;
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

class Plain final : public ByteSource {
 public:
  Plain(std::filesystem::path path, File file) : ByteSource(std::move(path)), file_(std::move(file)) {}
  size_t read(std::span<char> out) override {
    const size_t got = file_.read(out);
    at_ += static_cast<int64_t>(got);
    return got;
  }
  void skip(int64_t bytes) override {
    if (at_ + bytes > file_.size())
      throw input_error("{}: ends before byte {}: it is shorter than it was", path_.string(), at_ + bytes);
    at_ += bytes;
    file_.seek(at_);
  }
  int64_t stored_bytes() const override { return at_; }
  bool compressed() const override { return false; }

 private:
  File file_;
  int64_t at_ = 0;
};

// What gzip and zstd share: a window of the stored bytes.
class Compressed : public ByteSource {
 public:
  int64_t stored_bytes() const override { return window_offset_ + static_cast<int64_t>(used_); }
  bool compressed() const override { return true; }

 protected:
  Compressed(std::filesystem::path path, File file)
      : ByteSource(std::move(path)), file_(std::move(file)), window_(input_bytes) {}

  // Whether there are stored bytes that have not been used.
  bool more() {
    if (used_ < held_) return true;
    window_offset_ += static_cast<int64_t>(held_);
    used_ = 0;
    held_ = file_.read(window_);
    return held_ > 0;
  }
  [[noreturn]] void cut_off(const char* kind) const {
    throw input_error("{}: truncated: the {} data ends at byte {}, in the middle", path_.string(), kind,
                      stored_bytes());
  }
  [[noreturn]] void damaged(const char* kind, const char* reason) const {
    throw input_error("{}: damaged {} data near byte {}: {}", path_.string(), kind, stored_bytes(), reason);
  }

  File file_;
  std::vector<char> window_;
  size_t used_ = 0, held_ = 0;
  int64_t window_offset_ = 0;  // of window_[0] in the file
};

class Gzip final : public Compressed {
 public:
  Gzip(std::filesystem::path path, File file) : Compressed(std::move(path), std::move(file)) {
    if (::inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw run_error("zlib: out of memory");
  }
  ~Gzip() override { ::inflateEnd(&stream_); }

  size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out > 0 && !ended_) {
      if (!more()) {
        if (inside_) cut_off("gzip");
        ended_ = true;
        break;
      }
      if (!inside_ && members_ > 0 && only_padding()) continue;
      inside_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(window_.data() + used_);
      stream_.avail_in = static_cast<uInt>(held_ - used_);
      const int status = ::inflate(&stream_, Z_NO_FLUSH);
      used_ = held_ - stream_.avail_in;
      if (status == Z_STREAM_END) {
        inside_ = false;
        ++members_;
        ::inflateReset(&stream_);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        damaged("gzip", stream_.msg != nullptr ? stream_.msg : "zlib does not say what");
      }
    }
    return out.size() - stream_.avail_out;
  }

 private:
  // Zeros behind the last member are padding that tapes and block devices leave.
  bool only_padding() {
    if (window_[used_] != 0) return false;
    while (used_ < held_ && window_[used_] == 0) ++used_;
    return true;
  }

  z_stream stream_{};
  bool inside_ = false, ended_ = false;
  int64_t members_ = 0;
};

class Zstd final : public Compressed {
 public:
  Zstd(std::filesystem::path path, File file)
      : Compressed(std::move(path), std::move(file)), stream_(::ZSTD_createDStream()) {
    if (stream_ == nullptr) throw run_error("zstd: out of memory");
    // What `zstd --ultra --long=31` makes; the memory is taken only where a frame asks for it.
    ::ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 31);
  }
  ~Zstd() override { ::ZSTD_freeDStream(stream_); }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    while (to.pos < to.size && !ended_) {
      // Stored bytes may be used up while the library still holds text to give.
      const bool any = more();
      if (!any && !inside_) {
        ended_ = true;
        break;
      }
      ZSTD_inBuffer from = {window_.data(), held_, used_};
      const size_t before = to.pos;
      const size_t status = ::ZSTD_decompressStream(stream_, &to, &from);
      used_ = from.pos;
      if (::ZSTD_isError(status)) damaged("zstd", ::ZSTD_getErrorName(status));
      inside_ = status != 0;
      if (!any && inside_ && to.pos == before) cut_off("zstd");
    }
    return to.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool inside_ = false, ended_ = false;
};

}  // namespace

void refuse_foreign(const std::filesystem::path& path, std::string_view start) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 7> magics = {{
      {"BZh", "is compressed (bzip2)"},
      {"\xfd"
       "7zXZ",
       "is compressed (xz)"},
      {"\x04\x22\x4d\x18", "is compressed (lz4)"},
      {"PK\x03\x04", "is a zip archive"},
      {"PAR1", "is a Parquet table"},
      {"\xff\xfe", "is UTF-16 text"},
      {"\xfe\xff", "is UTF-16 text"},
  }};
  for (const auto& [magic, what] : magics)
    if (start.starts_with(magic))
      throw input_error("{} {}: give UTF-8 text or JSON lines, plain or compressed with gzip or zstd", path.string(),
                        what);
  if (start.size() > 262 && start.substr(257, 5) == "ustar")
    throw input_error("{} is a tar archive: unpack it, and give the text files in it or their folder", path.string());
  if (start.starts_with("MMIDIDX")) throw input_error("{} is the index of a built dataset, not text", path.string());
}

bool strip_compression(std::string_view name, std::string_view& rest) {
  rest = name;
  for (const std::string_view ending : {".gz", ".zst"})
    if (name.ends_with(ending)) {
      rest = name.substr(0, name.size() - ending.size());
      return true;
    }
  return false;
}

void ByteSource::skip(int64_t bytes) {
  std::vector<char> scratch(static_cast<size_t>(std::min<int64_t>(bytes, int64_t{1} << 20)));
  for (int64_t left = bytes; left > 0;) {
    const size_t got = read(std::span(scratch).first(static_cast<size_t>(std::min<int64_t>(left, int64_t{1} << 20))));
    if (got == 0)
      throw input_error("{}: its text ends {} bytes before where reading was to go on: it is shorter than it was",
                        path_.string(), left);
    left -= static_cast<int64_t>(got);
  }
}

std::unique_ptr<ByteSource> ByteSource::open(const std::filesystem::path& path) {
  File file(path);
  std::array<char, 512> start{};
  const std::string_view magic(start.data(), file.read(start));
  file.seek(0);
  if (magic.starts_with("\x1f\x8b")) return std::make_unique<Gzip>(path, std::move(file));
  // A zstd file may begin with a skippable frame (0x184D2A50 to 5F), as parallel compressors write.
  const bool skippable =
      magic.size() >= 4 && (static_cast<uint8_t>(magic[0]) & 0xF0) == 0x50 && magic.substr(1, 3) == "\x2a\x4d\x18";
  if (magic.starts_with("\x28\xb5\x2f\xfd") || skippable) return std::make_unique<Zstd>(path, std::move(file));
  refuse_foreign(path, magic);
  std::string_view rest;
  if (strip_compression(path.native(), rest))
    throw input_error("{}: named as compressed, but {} as gzip or zstd data does", path.string(),
                      magic.empty() ? "is empty; it does not begin" : "does not begin");
  return std::make_unique<Plain>(path, std::move(file));
}

}  // namespace strata::data
