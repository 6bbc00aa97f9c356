#include "checkpoint/hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "files/atomic_file.h"
#include "files/json.h"
#include "files/number_formats.h"

namespace strata::checkpoint {

namespace {

using files::shown;
using files::StoredTensor;

std::vector<int64_t> extents(const ops::Shape& shape) {
  return {shape.extent.begin(), shape.extent.begin() + shape.rank};
}

bool readable(const StoredTensor& tensor) {
  return tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16 ||
         tensor.dtype == DType::f64;
}

/// "A", "A and B", "A, B, C and 5 more".
std::string list_text(const std::vector<std::string>& names) {
  constexpr size_t most = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shown(names[i]));
  return names.size() > most ? fmt::format("{} and {} more", text, names.size() - most) : text;
}

}  // namespace

HfFolder::HfFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder_, ignored))
    throw input_error("{}: no such folder; a model is a folder with config.json and model.safetensors",
                      folder_.string());
  const std::filesystem::path file = folder_ / "config.json";
  config_file_ = file.string();
  const std::string text = files::read_text(file);
  config_ = model::from_hf_config(text, config_file_);
  extras_ = model::hf_extras(text, config_file_);
  tensors_ = files::Safetensors::open_folder(folder_);
  check_tensors();
}

std::string HfFolder::stored_name(const std::string& name) const {
  const std::string_view prefix = model::hf_prefix(config_.family);
  return !prefixed_ && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

const StoredTensor& HfFolder::tensor(const model::HfSlice& slice) const { return tensors_.at(stored_name(slice.name)); }

void HfFolder::check_tensors() {
  const std::vector<model::Unit> units = model::units(config_);
  const std::string table = model::hf_slices(config_, units.front(), units.front().parameter("table")).front().name;
  const std::string_view prefix = model::hf_prefix(config_.family);
  prefixed_ = tensors_.find(table) != nullptr || tensors_.find(table.substr(prefix.size())) == nullptr;

  std::set<std::string_view> wanted;
  std::vector<std::string> missing;
  std::set<DType> types;
  for (const model::Unit& unit : units) {
    for (const model::Parameter& parameter : unit.parameters) {
      for (const model::HfSlice& slice : model::hf_slices(config_, unit, parameter)) {
        const std::string name = stored_name(slice.name);
        const StoredTensor* found = tensors_.find(name);
        if (found == nullptr) {
          missing.push_back(name);
          continue;
        }
        wanted.insert(found->name);
        const std::vector<int64_t> shape = extents(slice.shape);
        if (found->shape != shape)
          throw input_error("{}: tensor {} has shape {}, but by {} it must be {}", found->file, shown(name),
                            files::shape_text(found->shape), config_file_, files::shape_text(shape));
        if (!readable(*found))
          throw input_error("{}: tensor {} is {}; weights can be read from F32, BF16, F16 and F64", found->file,
                            shown(name), found->stored_dtype);
        types.insert(*found->dtype);
      }
    }
  }

  std::vector<const StoredTensor*> extra;
  for (const auto& [name, stored] : tensors_.tensors()) {
    if (wanted.contains(name)) continue;
    std::string_view bare = name;
    if (bare.starts_with(prefix)) bare.remove_prefix(prefix.size());
    if (model::hf_is_buffer(config_.family, bare)) continue;
    if (config_.tied && name == model::hf_head_name(config_.family)) {
      const StoredTensor* shared = tensors_.find(stored_name(table));
      if (shared == nullptr) continue;  // reported as missing
      if (stored.dtype != shared->dtype || stored.shape != shared->shape ||
          !std::ranges::equal(stored.bytes, shared->bytes))
        throw input_error("{}: tensor {} differs from {}, but {} ties them (tie_word_embeddings)", stored.file,
                          shown(name), shown(shared->name), config_file_);
      continue;
    }
    extra.push_back(&stored);
  }

  if (!missing.empty()) {
    std::string hint;
    if (missing.front() == model::hf_head_name(config_.family))
      hint = "; if its head shares the embedding's table, config.json must say so (tie_word_embeddings)";
    else if (!extra.empty())
      hint = fmt::format("; {} is there but belongs to no such model", shown(extra.front()->name));
    throw input_error("{}: lacks {} of the {} that {} describes{}", tensors_.source(), list_text(missing),
                      model::name_of(config_.family), config_file_, hint);
  }
  if (!extra.empty()) {
    std::vector<std::string> names;
    for (const StoredTensor* stored : extra) names.push_back(stored->name);
    throw input_error("{}: tensor {} of shape {} is no part of the {} that {} describes{}", extra.front()->file,
                      shown(names.front()), files::shape_text(extra.front()->shape), model::name_of(config_.family),
                      config_file_,
                      names.size() > 1 ? fmt::format(" ({} such tensors: {})", names.size(), list_text(names)) : "");
  }
  extras_.dtype = types.size() == 1 && *types.begin() != DType::f64 ? *types.begin() : DType::f32;
}

void HfFolder::read(const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) const {
  STRATA_CHECK(static_cast<int64_t>(out.size()) == parameter.shape.elements(), "{} values for {}.{}", out.size(),
               unit.name, parameter.name);
  const int64_t row = parameter.matrix() ? parameter.shape[1] : 1;
  int64_t rows = 0;
  for (const model::HfSlice& slice : model::hf_slices(config_, unit, parameter)) {
    const StoredTensor& stored = tensor(slice);
    if (slice.layout == model::HfSlice::Layout::same) {
      stored.to_float(0,
                      out.subspan(static_cast<size_t>(slice.row_begin * row), static_cast<size_t>(slice.rows * row)));
    } else {
      std::vector<float> values(static_cast<size_t>(slice.shape.elements()));
      stored.to_float(0, values);
      model::from_hf(config_, parameter, slice, values, out);
    }
    rows += slice.rows;
  }
  STRATA_CHECK(rows == parameter.true_rows, "{} of {} rows of {}.{}", rows, parameter.true_rows, unit.name,
               parameter.name);
  std::ranges::fill(out.subspan(static_cast<size_t>(rows * row)), 0.0f);
}

namespace {

/// A Hugging Face tensor still to be written, and where its values come from.
struct Piece {
  size_t unit = 0, parameter = 0;
  model::HfSlice slice;
};

/// Hands fp32 values to the writer in its file's type.
void write_values(files::ShardedSafetensorsWriter& writer, std::span<const float> values, DType type) {
  if (type == DType::f32) {
    writer.write(std::as_bytes(values));
    return;
  }
  std::vector<uint16_t> converted;
  constexpr size_t piece = size_t{1} << 20;
  while (!values.empty()) {
    const std::span<const float> now = values.first(std::min(piece, values.size()));
    converted.resize(now.size());
    std::ranges::transform(now, converted.begin(), type == DType::bf16 ? files::float_to_bf16 : files::float_to_f16);
    writer.write(std::as_bytes(std::span<const uint16_t>(converted)));
    values = values.subspan(now.size());
  }
}

}  // namespace

void write_hf(const std::filesystem::path& folder, const model::Config& config, const ParameterSource& source,
              const HfExport& options) {
  const DType type = options.extras.dtype;
  const std::string config_json = model::to_hf_config(config, options.extras);  // refuses what cannot be said

  const std::vector<model::Unit> units = model::units(config);
  std::vector<Piece> pieces;
  std::vector<files::TensorSpec> specs;
  for (size_t u = 0; u < units.size(); ++u)
    for (size_t p = 0; p < units[u].parameters.size(); ++p)
      for (model::HfSlice& slice : model::hf_slices(config, units[u], units[u].parameters[p])) {
        specs.push_back({slice.name, type, extents(slice.shape)});
        pieces.push_back({u, p, std::move(slice)});
      }

  // Shards fill up in the model's order; inside a file tensors are in order of their names, as transformers has them.
  std::vector<std::vector<size_t>> shards = files::plan_shards(specs, options.max_shard_bytes);
  for (std::vector<size_t>& shard : shards)
    std::ranges::sort(shard, [&](size_t a, size_t b) { return specs[a].name < specs[b].name; });

  // A parameter is held from its first tensor in a shard to its last.
  struct Held {
    std::vector<float> values;
    int64_t uses = 0;
  };
  std::map<std::pair<size_t, size_t>, Held> held;
  files::ShardedSafetensorsWriter writer(folder, std::move(specs), shards, {{"format", "pt"}});
  std::vector<float> rearranged;
  for (const std::vector<size_t>& shard : shards) {
    for (const size_t index : shard) ++held[{pieces[index].unit, pieces[index].parameter}].uses;
    for (const size_t index : shard) {
      const Piece& piece = pieces[index];
      const model::Unit& unit = units[piece.unit];
      const model::Parameter& parameter = unit.parameters[piece.parameter];
      const auto entry = held.find({piece.unit, piece.parameter});
      std::vector<float>& values = entry->second.values;
      if (values.empty()) {
        values.resize(static_cast<size_t>(parameter.shape.elements()));
        source(unit, parameter, values);
      }
      STRATA_CHECK(writer.next() == index, "{} is out of turn", piece.slice.name);
      if (piece.slice.layout == model::HfSlice::Layout::same) {
        const int64_t row = parameter.matrix() ? parameter.shape[1] : 1;
        write_values(writer,
                     std::span<const float>(values).subspan(static_cast<size_t>(piece.slice.row_begin * row),
                                                            static_cast<size_t>(piece.slice.rows * row)),
                     type);
      } else {
        rearranged.resize(static_cast<size_t>(piece.slice.shape.elements()));
        model::to_hf(config, parameter, piece.slice, values, rearranged);
        write_values(writer, rearranged, type);
      }
      if (--entry->second.uses == 0) held.erase(entry);
    }
  }
  writer.commit();
  files::write_text(folder / "config.json", config_json);
}

void export_hf(const std::filesystem::path& folder, const model::Config& config, const ParameterSource& source,
               const HfExport& options) {
  files::AtomicFolder target(folder);
  write_hf(target.partial(), config, source, options);
  target.commit();
}

}  // namespace strata::checkpoint
