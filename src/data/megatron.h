#pragma once
// Tokenised datasets as Megatron-LM and GPT-NeoX keep them: PREFIX.bin, the token ids back to back, and PREFIX.idx,
// where each sequence lies and which sequences make a document.
//
// PREFIX.idx, little-endian, unpadded (Megatron-LM's megatron/core/datasets/indexed_dataset.py):
//   0   9 bytes   "MMIDIDX\0\0"
//   9   u64       version, 1
//   17  u8        element type: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 (6 and 7 are floats)
//   18  u64       sequences S
//   26  u64       entries D of the document index
//   34  i32[S]    length of each sequence, in tokens
//       i64[S]    where it begins in PREFIX.bin, in bytes: the sum of what is before
//       i64[D]    first sequence of each document, and S at the end

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/types.h"
#include "files/random_file.h"

namespace strata::data {

/// "folder/name" for "folder/name", "folder/name.bin" and "folder/name.idx".
std::filesystem::path dataset_prefix(const std::filesystem::path& path);
std::filesystem::path bin_path(const std::filesystem::path& prefix);
std::filesystem::path idx_path(const std::filesystem::path& prefix);

/// The contents of an .idx file, every entry checked against the others and against the size of the .bin file. Holds
/// next to none of it: what is asked for is read from the file, whose reads may throw (RandomFile::read).
class MegatronIndex {
 public:
  /// Reads the file once from front to back. Throws an input error, naming PREFIX.idx or PREFIX.bin, for anything that
  /// does not fit together.
  MegatronIndex(files::RandomFile idx, int64_t bin_bytes, const std::filesystem::path& prefix);

  DType dtype() const { return dtype_; }
  int64_t sequences() const { return sequences_; }
  int64_t tokens() const { return tokens_; }
  /// Sequences behind the last border of the document index, if any, make one more document.
  int64_t documents() const { return documents_; }
  int64_t entries() const { return entries_; }  ///< of the document index, as the file has them
  int64_t sequence_length(int64_t sequence) const;
  int64_t sequence_begin(int64_t sequence) const;  ///< in tokens; sequences() gives tokens()
  int64_t document_begin(int64_t document) const;  ///< in tokens; documents() gives tokens()

  /// For each of the tokens first .. first + out.size() - 1 of the stream, where its document begins: how many tokens
  /// behind `first`, 0 where it begins before. Found by bisection; documents without tokens do not
  /// show. Allocates nothing.
  void document_starts(int64_t first, std::span<int32_t> out) const;

  /// Calls take(part), `part` being a span of some, for the length of each sequence in tokens, in order.
  template <typename Take>
  void for_sequence_lengths(Take take) const;
  /// The same for the length of each document.
  template <typename Take>
  void for_document_lengths(Take take) const;

 private:
  int64_t entry(int64_t index) const;
  void read_lengths(int64_t first, std::span<int64_t> out) const;
  void read_document_ends(int64_t first, std::span<int64_t> out) const;
  files::RandomFile file_;
  DType dtype_ = DType::u16;
  int64_t sequences_ = 0, entries_ = 0, tokens_ = 0, documents_ = 0;
  int64_t stride_ = 1;
  std::vector<int64_t> landmarks_;  // where every stride_-th document begins: a bounded number of them
};

/// A dataset on disk: all sequences as one stream of tokens.
class MegatronFile {
 public:
  /// `prefix` may name either file. Reads the whole index once, to check it; throws input errors.
  explicit MegatronFile(const std::filesystem::path& prefix);

  const MegatronIndex& index() const { return index_; }
  const std::filesystem::path& prefix() const { return prefix_; }
  int64_t tokens() const { return index_.tokens(); }
  int64_t bin_bytes() const { return bin_.size(); }

  /// Tokens first .. first + out.size() - 1 of the stream. Throws an input error, naming file and place, for an id
  /// below 0 or at or past `vocab`, and for a file that was cut since it was opened.
  void read(int64_t first, int64_t vocab, std::span<int32_t> out) const;

  /// Lets the system fetch the tokens first .. first + count - 1 in the background.
  void will_need(int64_t first, int64_t count) const;

 private:
  std::filesystem::path prefix_;
  files::RandomFile bin_;
  MegatronIndex index_;
};

/// u16 where ids fit (vocab < 65500, Megatron's rule), else i32.
DType token_dtype(int64_t vocab);

/// Writes a dataset, holding no more than a buffer of it. What is under way lies in files of its own (WORK.tokens,
/// WORK.lengths, WORK.borders, at the end WORK.index); `commit` gives them their names, PREFIX.idx last. Throws run errors
/// where the disk gives up.
class MegatronWriter {
 public:
  /// How far a dataset has got: enough to go on from what the files hold, whatever was written behind it.
  struct Mark {
    int64_t tokens = 0, sequences = 0, documents = 0, empty_documents = 0;
    int64_t document_start = 0;  ///< first sequence of the current document
    int32_t open_length = -1;    ///< tokens of the latest sequence, which is counted above, but not yet in WORK.lengths
    bool operator==(const Mark&) const = default;
  };

  /// Temporary files beside PREFIX, removed without commit.
  MegatronWriter(const std::filesystem::path& prefix, DType dtype);
  /// Files WORK.*, which stay. Goes on from a mark that `mark` gave out; throws an input error if they hold less.
  MegatronWriter(const std::filesystem::path& prefix, DType dtype, const std::filesystem::path& work, const Mark& from);
  MegatronWriter(const MegatronWriter&) = delete;
  MegatronWriter& operator=(const MegatronWriter&) = delete;
  ~MegatronWriter();

  /// One more sequence of the current document; an empty one is left out. Ids must fit the element type.
  void add(std::span<const int32_t> ids);
  /// One more token of the latest sequence, which the current document must have.
  void append(int32_t id);
  /// Ends the current document; one without tokens leaves no trace and is counted in empty_documents().
  void end_document();

  bool inside_document() const { return at_.sequences != at_.document_start; }
  int64_t sequences() const { return at_.sequences; }
  int64_t documents() const { return at_.documents; }
  int64_t tokens() const { return at_.tokens; }
  int64_t empty_documents() const { return at_.empty_documents; }

  /// All that was added is on disk.
  Mark mark();
  /// Ends an open document and writes all that is still to be written, to the files under way.
  void finish();
  /// Finishes, and puts both files in place. An older dataset of that name stops existing first, so that no reader ever
  /// meets the one's index with the other's tokens.
  void commit();

 private:
  class Log;
  template <typename T>
  void put(std::span<const int32_t> ids);
  void put(std::span<const int32_t> ids);
  void close_sequence();
  void write_index();
  void remove_files() const;
  std::filesystem::path prefix_, work_;
  DType dtype_;
  bool keep_;
  Mark at_;
  std::unique_ptr<Log> tokens_, lengths_, borders_;
  bool finished_ = false, committed_ = false;
};

/// Puts WORK.tokens and WORK.index, as MegatronWriter::finish left them, in place under PREFIX, as far as they are not;
/// true if PREFIX.bin and PREFIX.idx are there afterwards.
bool commit_dataset(const std::filesystem::path& prefix, const std::filesystem::path& work);

namespace detail {
inline constexpr size_t index_block = 16384;  // entries read at a time
}

template <typename Take>
void MegatronIndex::for_sequence_lengths(Take take) const {
  std::vector<int64_t> part(detail::index_block);
  for (int64_t at = 0; at < sequences_;) {
    const auto count = static_cast<size_t>(std::min(sequences_ - at, static_cast<int64_t>(part.size())));
    const std::span<int64_t> lengths = std::span(part).first(count);
    read_lengths(at, lengths);
    take(std::span<const int64_t>(lengths));
    at += static_cast<int64_t>(count);
  }
}

template <typename Take>
void MegatronIndex::for_document_lengths(Take take) const {
  std::vector<int64_t> part(detail::index_block);
  int64_t before = 0;
  for (int64_t at = 0; at < documents_;) {
    const auto count = static_cast<size_t>(std::min(documents_ - at, static_cast<int64_t>(part.size())));
    const std::span<int64_t> lengths = std::span(part).first(count);
    read_document_ends(at, lengths);
    for (int64_t& length : lengths) {
      const int64_t end = length;
      length = end - before;
      before = end;
    }
    take(std::span<const int64_t>(lengths));
    at += static_cast<int64_t>(count);
  }
}

}  // namespace strata::data
