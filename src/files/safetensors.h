#pragma once
// Named tensors in files: the safetensors format, single files and Hugging Face's sharded folders.
//
// A file is 8 bytes N (little-endian), N bytes of JSON {name: {dtype, shape, data_offsets}, "__metadata__": {...}}
// padded with spaces, and the tensors' bytes: row-major, little-endian, back to back with no holes
// (github.com/huggingface/safetensors, README "Format"). Everything here is for little-endian machines.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "files/atomic_file.h"
#include "files/mapped_file.h"

namespace strata::files {

/// The longest header that is read, as the format has it.
inline constexpr uint64_t max_safetensors_header = 100'000'000;

/// "F32", "BF16", ...: the spelling of an element type in a safetensors header.
std::string_view safetensors_name_of(DType type);

/// "[64, 192]", "[]" for a scalar.
std::string shape_text(std::span<const int64_t> shape);

/// One tensor of an open file. Views stay valid as long as the Safetensors object they came from.
struct StoredTensor {
  std::string name;
  std::string stored_dtype;    ///< as the header spells it; may be one that Strata does not compute with
  std::optional<DType> dtype;  ///< empty for BOOL, 8-bit floats and the like
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  ///< in the mapped file, not aligned
  std::string file;                  ///< for messages

  int64_t elements() const;

  /// Copies all elements out. Throws an input error naming tensor, dtype and file unless the stored type is just that
  /// one.
  std::vector<float> f32() const;
  std::vector<double> f64() const;
  std::vector<int32_t> i32() const;

  /// out.size() elements from `first` on, as fp32. Stored may be F32, BF16, F16 (exact) or F64 (rounded to nearest);
  /// any other type is an input error naming tensor, dtype and file.
  void to_float(int64_t first, std::span<float> out) const;
};

/// Reads a header: the tensors in order of their bytes. Every rule of the format is checked, so that all views lie
/// inside `file_bytes`; a breach is an input error that opens with `file` and names the tensor. `metadata` may be null.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file_bytes, std::string_view file,
                                            std::map<std::string, std::string>* metadata = nullptr);

/// The weight_map of a model.safetensors.index.json: tensor name to file name (a plain name in the same folder).
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, std::string_view file);

/// One or more mapped files read as one set of tensors.
class Safetensors {
 public:
  /// One file.
  static Safetensors open_file(const std::filesystem::path& path);

  /// A folder's model.safetensors or, failing that, the shards that its model.safetensors.index.json names. Each tensor
  /// must be in the shard the index names and in no other; a tensor that the index does not know is an error too.
  static Safetensors open_folder(const std::filesystem::path& folder);

  /// Where the tensors came from, for messages: the file, or the index.
  const std::string& source() const { return source_; }
  /// By name.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  /// An input error naming the file, and the nearest name there is, if there is none of this name.
  const StoredTensor& at(std::string_view name) const;
  /// Of the single file, or of all shards together.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void add(const std::filesystem::path& path);

  std::string source_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor about to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t bytes() const;
};

/// Writes one file, front to back: names, types and shapes first, then exactly the bytes they need, in the order given.
/// The data starts on a multiple of 8 bytes; give the wider types first to keep all of it aligned. The file appears
/// under its name at `commit`; without it nothing is left behind.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  void write(std::span<const std::byte> bytes);
  template <typename T>
  void write(std::span<const T> values) {
    write(std::as_bytes(values));
  }
  void commit();

 private:
  AtomicFile file_;
  int64_t remaining_ = 0;
};

/// Decides which tensors share a file: in the order given, a new shard whenever the next tensor would take the current
/// one's data over `max_shard_bytes` (a tensor larger than that has a shard of its own). Returns indices into
/// `tensors`.
std::vector<std::vector<size_t>> plan_shards(std::span<const TensorSpec> tensors, int64_t max_shard_bytes);

/// Writes a folder's tensors as model.safetensors, or as model-00001-of-000NN.safetensors with an index where `shards`
/// (as plan_shards lists them) has several. Tensors are written shard by shard, in each in the order of its list. The
/// folder must exist; it is whole after `commit`.
class ShardedSafetensorsWriter {
 public:
  ShardedSafetensorsWriter(std::filesystem::path folder, std::vector<TensorSpec> tensors,
                           std::vector<std::vector<size_t>> shards, std::map<std::string, std::string> metadata = {});
  /// Index of the tensor whose first byte comes next; tensors.size() when all are written.
  size_t next() const;
  /// The whole of tensor `next()`, in one or more pieces.
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  void settle();

  std::filesystem::path folder_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::vector<size_t>> shards_;
  std::map<std::string, std::string> metadata_;
  size_t shard_ = 0, position_ = 0;  // position in the shard's list
  int64_t left_ = 0;                 // bytes of the current tensor still to come
  std::unique_ptr<SafetensorsWriter> writer_;
  std::vector<std::string> names_;  // of the files
};

}  // namespace strata::files
