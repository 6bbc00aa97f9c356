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

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/types.h"
#include "files/atomic_file.h"
#include "files/mapped_file.h"

namespace strata::data {

/// "folder/name" for "folder/name", "folder/name.bin" and "folder/name.idx".
std::filesystem::path dataset_prefix(const std::filesystem::path& path);
std::filesystem::path bin_path(const std::filesystem::path& prefix);
std::filesystem::path idx_path(const std::filesystem::path& prefix);

/// The contents of an .idx file, every entry checked against the others and against the size of the .bin file. Views
/// the bytes it was made from.
class MegatronIndex {
 public:
  /// Throws an input error, naming PREFIX.idx or PREFIX.bin, for anything that does not fit together.
  MegatronIndex(std::span<const std::byte> idx, int64_t bin_bytes, const std::filesystem::path& prefix);

  DType dtype() const { return dtype_; }
  int64_t sequences() const { return sequences_; }
  int64_t tokens() const { return tokens_; }
  /// Sequences behind the last border of the document index, if any, make one more document.
  int64_t documents() const { return documents_; }
  int64_t entries() const { return entries_; }  ///< of the document index, as the file has them
  int64_t sequence_length(int64_t sequence) const;
  int64_t sequence_begin(int64_t sequence) const;  ///< in tokens; sequences() gives tokens()
  int64_t document_begin(int64_t document) const;  ///< in tokens; documents() gives tokens()

 private:
  int64_t entry(int64_t index) const;
  std::span<const std::byte> bytes_;
  DType dtype_ = DType::u16;
  int64_t sequences_ = 0, entries_ = 0, tokens_ = 0, documents_ = 0;
};

/// A dataset on disk, mapped: all sequences as one stream of tokens.
class MegatronFile {
 public:
  /// `prefix` may name either file. Reads the whole index once, to check it; throws input errors.
  explicit MegatronFile(const std::filesystem::path& prefix);

  const MegatronIndex& index() const { return index_; }
  const std::filesystem::path& prefix() const { return prefix_; }
  int64_t tokens() const { return index_.tokens(); }
  int64_t bin_bytes() const { return static_cast<int64_t>(bin_.bytes().size()); }

  /// Tokens first .. first + out.size() - 1 of the stream. Throws an input error, naming file and place, for an id
  /// below 0 or at or past `vocab`.
  void read(int64_t first, int64_t vocab, std::span<int32_t> out) const;

  /// Reads every token; throws as `read` does. Returns the largest id (-1 without tokens).
  int32_t check_ids(int64_t vocab) const;

 private:
  std::filesystem::path prefix_;
  files::MappedFile idx_, bin_;
  MegatronIndex index_;
};

/// u16 where ids fit (vocab < 65500, Megatron's rule), else i32.
DType token_dtype(int64_t vocab);

/// Writes a dataset, holding no more than a buffer of it. Both files are built under temporary names and renamed at the
/// end, PREFIX.idx last; without commit nothing is left. Throws run errors where the disk gives up.
class MegatronWriter {
 public:
  MegatronWriter(const std::filesystem::path& prefix, DType dtype);
  MegatronWriter(const MegatronWriter&) = delete;
  MegatronWriter& operator=(const MegatronWriter&) = delete;
  ~MegatronWriter();

  /// One more sequence of the current document; an empty one is left out. Ids must fit the element type.
  void add(std::span<const int32_t> ids);
  /// Ends the current document; one without tokens leaves no trace and is counted in empty_documents().
  void end_document();

  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  int64_t empty_documents() const { return empty_documents_; }

  /// Ends an open document and writes all that is still to be written, under the temporary names.
  void finish();
  /// Finishes, and puts both files in place. An older dataset of that name stops existing first, so that no reader ever
  /// meets the one's index with the other's tokens.
  void commit();

 private:
  class Spill;
  void flush_tokens();
  void write_index();
  std::filesystem::path prefix_;
  DType dtype_;
  files::AtomicFile bin_, idx_;
  std::unique_ptr<Spill> lengths_, borders_;
  std::string buffer_;
  int64_t sequences_ = 0, documents_ = 0, tokens_ = 0, empty_documents_ = 0;
  int64_t document_start_ = 0;  // first sequence of the current document
  bool finished_ = false;
};

}  // namespace strata::data
