#include "files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "files/json.h"
#include "files/number_formats.h"

namespace strata::files {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are read and written as they are in memory");

namespace {

using Json = nlohmann::json;

struct StoredType {
  std::string_view name;
  int bits;
  std::optional<DType> type;
};

/// Every element type of the format (huggingface/safetensors: safetensors/src/tensor.rs, enum Dtype).
constexpr std::array stored_types = {
    StoredType{"F64", 64, DType::f64}, StoredType{"F32", 32, DType::f32},
    StoredType{"F16", 16, DType::f16}, StoredType{"BF16", 16, DType::bf16},
    StoredType{"I64", 64, DType::i64}, StoredType{"I32", 32, DType::i32},
    StoredType{"I16", 16, DType::i16}, StoredType{"I8", 8, DType::i8},
    StoredType{"U8", 8, DType::u8},    StoredType{"U16", 16, DType::u16},
    StoredType{"U32", 32, {}},         StoredType{"U64", 64, {}},
    StoredType{"BOOL", 8, {}},         StoredType{"C64", 64, {}},
    StoredType{"F8_E4M3", 8, {}},      StoredType{"F8_E5M2", 8, {}},
    StoredType{"F8_E8M0", 8, {}},      StoredType{"F8_E4M3FNUZ", 8, {}},
    StoredType{"F8_E5M2FNUZ", 8, {}},  StoredType{"F6_E2M3", 6, {}},
    StoredType{"F6_E3M2", 6, {}},      StoredType{"F4", 4, {}},
};

int64_t product(std::span<const int64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;  // the others may be of any size
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

template <typename T>
std::vector<T> copy_out(const StoredTensor& tensor, DType wanted) {
  if (tensor.dtype != wanted)
    throw input_error("{}: tensor {} is {}, expected {}", tensor.file, shown(tensor.name), tensor.stored_dtype,
                      safetensors_name_of(wanted));
  std::vector<T> out(tensor.bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
  return out;
}

template <typename T, typename Convert>
void convert_elements(const std::byte* from, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = convert(value);
  }
}

/// A non-negative whole number of at most 2^63 - 1, or nothing.
std::optional<int64_t> whole_number(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

/// One entry of the header, its offsets not yet compared with the other tensors'.
struct Entry {
  StoredTensor tensor;
  int64_t begin = 0, end = 0;
};

Entry parse_entry(const std::string& name, const Json& value, std::string_view file) {
  const std::string where = fmt::format("{}: tensor {}", file, shown(name));
  if (!value.is_object()) throw input_error("{}: described by {}, expected an object", where, shown_json(value));
  for (const auto& [key, unused] : value.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      throw input_error("{}: unknown key {} in its description", where, shown(key));
  const auto part = [&](const char* key) -> const Json& {
    const auto found = value.find(key);
    if (found == value.end()) throw input_error("{}: its description lacks {}", where, key);
    return *found;
  };

  Entry entry;
  entry.tensor.name = name;
  entry.tensor.file = file;

  const Json& dtype = part("dtype");
  const std::string_view dtype_name = dtype.is_string() ? std::string_view(dtype.get_ref<const std::string&>()) : "";
  const auto type = std::find_if(stored_types.begin(), stored_types.end(),
                                 [&](const StoredType& known) { return dtype_name == known.name; });
  if (type == stored_types.end()) throw input_error("{}: unknown dtype {}", where, shown_json(dtype));
  entry.tensor.stored_dtype = type->name;
  entry.tensor.dtype = type->type;

  const Json& shape = part("shape");
  if (!shape.is_array()) throw input_error("{}: shape is {}, expected a list", where, shown_json(shape));
  int64_t bits = type->bits;
  bool empty = false, overflow = false;
  for (const Json& extent : shape) {
    const std::optional<int64_t> number = whole_number(extent);
    if (!number) throw input_error("{}: shape holds {}, expected whole numbers from 0", where, shown_json(extent));
    entry.tensor.shape.push_back(*number);
    empty |= *number == 0;
    overflow |= __builtin_mul_overflow(bits, *number, &bits);
  }
  // An extent of 0 makes an empty tensor whatever the others are; then nothing has overflowed that matters.
  if (empty) bits = 0;
  if (overflow && !empty)
    throw input_error("{}: shape {} of {} overflows", where, shape_text(entry.tensor.shape), type->name);
  if (bits % 8 != 0)
    throw input_error("{}: shape {} of {} is no whole number of bytes", where, shape_text(entry.tensor.shape),
                      type->name);
  const int64_t bytes = bits / 8;

  const Json& offsets = part("data_offsets");
  std::optional<int64_t> begin, end;
  if (offsets.is_array() && offsets.size() == 2) {
    begin = whole_number(offsets[0]);
    end = whole_number(offsets[1]);
  }
  if (!begin || !end || *begin > *end)
    throw input_error("{}: data_offsets must be two whole numbers [begin, end] with begin <= end", where);
  entry.begin = *begin;
  entry.end = *end;
  if (entry.end - entry.begin != bytes)
    throw input_error("{}: data_offsets [{}, {}] hold {} bytes, but shape {} of {} takes {}", where, entry.begin,
                      entry.end, entry.end - entry.begin, shape_text(entry.tensor.shape), type->name, bytes);
  return entry;
}

void parse_metadata(const Json& value, std::string_view file, std::map<std::string, std::string>* metadata) {
  if (!value.is_object()) throw input_error("{}: __metadata__ is {}, expected an object", file, shown_json(value));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      throw input_error("{}: __metadata__ key {} is {}, expected a string", file, shown(key), shown_json(text));
    if (metadata != nullptr) (*metadata)[key] = text.get<std::string>();
  }
}

}  // namespace

std::string_view safetensors_name_of(DType type) {
  for (const StoredType& known : stored_types)
    if (known.type == type) return known.name;
  STRATA_CHECK(false, "{} has no name in safetensors", name_of(type));
  return {};
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t StoredTensor::elements() const { return product(shape); }

std::vector<float> StoredTensor::f32() const { return copy_out<float>(*this, DType::f32); }
std::vector<double> StoredTensor::f64() const { return copy_out<double>(*this, DType::f64); }
std::vector<int32_t> StoredTensor::i32() const { return copy_out<int32_t>(*this, DType::i32); }

void StoredTensor::to_float(int64_t first, std::span<float> out) const {
  STRATA_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= elements(),
               "elements {} to {} of {}, which has {}", first, first + static_cast<int64_t>(out.size()), name,
               elements());
  if (out.empty()) return;
  const auto from = [&](DType type) { return bytes.data() + first * size_of(type); };
  switch (dtype.value_or(DType::u8)) {
    case DType::f32: std::memcpy(out.data(), from(DType::f32), out.size_bytes()); return;
    case DType::bf16: convert_elements<uint16_t>(from(DType::bf16), out, bf16_to_float); return;
    case DType::f16: convert_elements<uint16_t>(from(DType::f16), out, f16_to_float); return;
    case DType::f64:
      convert_elements<double>(from(DType::f64), out, [](double value) { return static_cast<float>(value); });
      return;
    default:
      throw input_error("{}: tensor {} is {}; F32, BF16, F16 and F64 can be read as numbers", file, shown(name),
                        stored_dtype);
  }
}

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file_bytes, std::string_view file,
                                            std::map<std::string, std::string>* metadata) {
  const uint64_t size = file_bytes.size();
  if (size < 8)
    throw input_error("{}: truncated or no safetensors file: {} bytes, and the length of the header alone takes 8",
                      file, size);
  uint64_t header_size = 0;
  std::memcpy(&header_size, file_bytes.data(), 8);
  if (header_size > max_safetensors_header)
    throw input_error("{}: not a safetensors file: its first 8 bytes give a header of {} bytes, and the limit is {}",
                      file, header_size, max_safetensors_header);
  if (header_size > size - 8)
    throw input_error("{}: truncated: the header ends at byte {}, and the file has {}", file, 8 + header_size, size);
  const std::string_view header(reinterpret_cast<const char*>(file_bytes.data()) + 8, header_size);
  if (!header.starts_with('{'))
    throw input_error("{}: not a safetensors file: its header does not begin with an opening brace", file);

  const Json json = parse_json(header, fmt::format("{} (header)", file), 4);
  std::vector<Entry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__")
      parse_metadata(value, file, metadata);
    else
      entries.push_back(parse_entry(name, value, file));
  }

  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  const uint64_t data_size = size - 8 - header_size;
  int64_t covered = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.begin < covered)
      throw input_error("{}: tensors {} and {} overlap in bytes {} to {}", file, shown(entries[i - 1].tensor.name),
                        shown(entry.tensor.name), entry.begin, std::min(covered, entry.end));
    if (entry.begin > covered)
      throw input_error("{}: bytes {} to {}, before tensor {}, belong to no tensor", file, covered, entry.begin,
                        shown(entry.tensor.name));
    covered = entry.end;
  }
  if (static_cast<uint64_t>(covered) > data_size)
    throw input_error("{}: truncated: its tensors end at byte {}, and the file has {}", file,
                      8 + header_size + static_cast<uint64_t>(covered), size);
  if (static_cast<uint64_t>(covered) < data_size)
    throw input_error(
        "{}: {} bytes after the last tensor belong to none: its tensors end at byte {}, and the file has {}", file,
        data_size - static_cast<uint64_t>(covered), 8 + header_size + static_cast<uint64_t>(covered), size);

  const std::span<const std::byte> data = file_bytes.subspan(8 + header_size);
  std::vector<StoredTensor> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.end - entry.begin));
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view text, std::string_view file) {
  const Json json = parse_json(text, file);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object())
    throw input_error("{}: not an index of safetensors shards: it has no weight_map object", file);
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string())
      throw input_error("{}: weight_map puts {} in {}, expected a file name", file, shown(name), shown_json(shard));
    const auto shard_name = shard.get<std::string>();
    // Shards lie beside the index: a name that leads elsewhere is refused.
    if (shard_name.empty() || shard_name == "." || shard_name == ".." || shard_name.find('/') != std::string::npos ||
        shard_name.find('\0') != std::string::npos)
      throw input_error("{}: weight_map puts {} in {}, which is no plain file name", file, shown(name),
                        shown_json(shard));
    shards.emplace(name, shard_name);
  }
  return shards;
}

void Safetensors::add(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<MappedFile>(path));
  for (StoredTensor& tensor : parse_safetensors(files_.back()->bytes(), path.string(), &metadata_)) {
    std::string name = tensor.name;
    const auto [entry, added] = tensors_.emplace(std::move(name), std::move(tensor));
    if (!added)
      throw input_error("{}: tensor {} is in {} as well", path.string(), shown(entry->first), entry->second.file);
  }
}

Safetensors Safetensors::open_file(const std::filesystem::path& path) {
  Safetensors result;
  result.source_ = path.string();
  result.add(path);
  return result;
}

Safetensors Safetensors::open_folder(const std::filesystem::path& folder) {
  const std::filesystem::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) throw input_error("{}: no such folder", folder.string());
  if (std::filesystem::exists(single, ignored)) return open_file(single);
  if (!std::filesystem::exists(index, ignored)) {
    const bool pickled = std::filesystem::exists(folder / "pytorch_model.bin", ignored) ||
                         std::filesystem::exists(folder / "pytorch_model.bin.index.json", ignored);
    throw input_error(
        "{}: has neither model.safetensors nor model.safetensors.index.json{}", folder.string(),
        pickled ? "; its pytorch_model.bin is not read: save the model again with safe_serialization=True" : "");
  }

  Safetensors result;
  result.source_ = index.string();
  const std::map<std::string, std::string> shards = parse_safetensors_index(read_text(index), index.string());
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shards) names.insert(shard);
  for (const std::string& name : names) {
    if (!std::filesystem::exists(folder / name, ignored))
      throw input_error("{}: names the shard {}, which is not in the folder", index.string(), shown(name));
    result.add(folder / name);
  }
  for (const auto& [name, shard] : shards) {
    const StoredTensor* tensor = result.find(name);
    if (tensor == nullptr)
      throw input_error("{}: puts tensor {} in {}, which does not hold it", index.string(), shown(name), shown(shard));
    if (tensor->file != (folder / shard).string())
      throw input_error("{}: puts tensor {} in {}, but it is in {}", index.string(), shown(name), shown(shard),
                        tensor->file);
  }
  for (const auto& [name, tensor] : result.tensors_)
    if (!shards.contains(name))
      throw input_error("{}: tensor {} is not in the weight_map of {}", tensor.file, shown(name), index.string());
  return result;
}

const StoredTensor* Safetensors::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const StoredTensor& Safetensors::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : tensors_) names.push_back(known);
  throw input_error("{}: has no tensor {}{}", source_, shown(name), did_you_mean(name, names));
}

int64_t TensorSpec::bytes() const { return product(shape) * size_of(dtype); }

namespace {

/// The 8 length bytes and the padded header.
std::string header_of(const std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  const auto comma = [&] { return json.size() > 1 ? "," : ""; };
  if (!metadata.empty()) json += fmt::format("\"__metadata__\":{}", Json(metadata).dump());
  std::set<std::string_view> names;
  int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    STRATA_CHECK(names.insert(tensor.name).second, "tensor {} is to be written twice", tensor.name);
    STRATA_CHECK(tensor.name != "__metadata__");
    const int64_t end = offset + tensor.bytes();
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma(),
                        Json(tensor.name).dump(), safetensors_name_of(tensor.dtype), fmt::join(tensor.shape, ","),
                        offset, end);
    offset = end;
  }
  json += '}';
  json.append(static_cast<size_t>(round_up(static_cast<int64_t>(json.size()), 8)) - json.size(), ' ');
  STRATA_CHECK(json.size() <= max_safetensors_header, "a header of {} bytes", json.size());
  const uint64_t size = json.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &size, 8);
  return length + json;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  for (const TensorSpec& tensor : tensors) remaining_ += tensor.bytes();
  file_.write(header_of(tensors, metadata));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  STRATA_CHECK(static_cast<int64_t>(bytes.size()) <= remaining_, "{} bytes written, {} still expected", bytes.size(),
               remaining_);
  file_.write(bytes);
  remaining_ -= static_cast<int64_t>(bytes.size());
}

void SafetensorsWriter::commit() {
  STRATA_CHECK(remaining_ == 0, "{} bytes not written", remaining_);
  file_.commit();
}

std::vector<std::vector<size_t>> plan_shards(std::span<const TensorSpec> tensors, int64_t max_shard_bytes) {
  std::vector<std::vector<size_t>> shards(1);
  int64_t used = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].bytes();
    if (!shards.back().empty() && used + bytes > max_shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(i);
    used += bytes;
  }
  return shards;
}

ShardedSafetensorsWriter::ShardedSafetensorsWriter(std::filesystem::path folder, std::vector<TensorSpec> tensors,
                                                   std::vector<std::vector<size_t>> shards,
                                                   std::map<std::string, std::string> metadata)
    : folder_(std::move(folder)),
      tensors_(std::move(tensors)),
      shards_(std::move(shards)),
      metadata_(std::move(metadata)) {
  STRATA_CHECK(!shards_.empty());
  std::vector<int> placed(tensors_.size());
  for (const auto& shard : shards_)
    for (const size_t index : shard) ++placed.at(index);
  for (size_t i = 0; i < placed.size(); ++i)
    STRATA_CHECK(placed[i] == 1, "tensor {} is in {} shards", tensors_[i].name, placed[i]);
  for (size_t i = 0; i < shards_.size(); ++i)
    names_.push_back(shards_.size() == 1 ? "model.safetensors"
                                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards_.size()));
  settle();
}

/// Goes on to the next tensor that has bytes, finishing and opening files on the way.
void ShardedSafetensorsWriter::settle() {
  while (left_ == 0 && shard_ < shards_.size()) {
    const std::vector<size_t>& list = shards_[shard_];
    if (writer_ == nullptr) {
      std::vector<TensorSpec> held;
      for (const size_t index : list) held.push_back(tensors_[index]);
      writer_ = std::make_unique<SafetensorsWriter>(folder_ / names_[shard_], held, metadata_);
      position_ = 0;
    } else {
      ++position_;
    }
    if (position_ < list.size()) {
      left_ = tensors_[list[position_]].bytes();
    } else {
      writer_->commit();
      writer_.reset();
      ++shard_;
    }
  }
}

size_t ShardedSafetensorsWriter::next() const {
  return shard_ < shards_.size() ? shards_[shard_][position_] : tensors_.size();
}

void ShardedSafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  STRATA_CHECK(static_cast<int64_t>(bytes.size()) <= left_, "{} bytes written, {} expected", bytes.size(), left_);
  writer_->write(bytes);
  left_ -= static_cast<int64_t>(bytes.size());
  settle();
}

void ShardedSafetensorsWriter::commit() {
  STRATA_CHECK(next() == tensors_.size(), "tensor {} is not written", tensors_[next()].name);
  if (shards_.size() == 1) return;
  int64_t total = 0;
  Json map = Json::object();
  for (size_t i = 0; i < shards_.size(); ++i) {
    for (const size_t index : shards_[i]) {
      map[tensors_[index].name] = names_[i];
      total += tensors_[index].bytes();
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  write_text(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace strata::files
