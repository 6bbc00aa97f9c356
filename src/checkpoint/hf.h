#pragma once
// Models as Hugging Face folders: config.json and model.safetensors (or shards with an index), in and out.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "core/types.h"
#include "files/safetensors.h"
#include "model/config.h"
#include "model/hf_config.h"
#include "model/hf_names.h"
#include "model/unit.h"

namespace strata::checkpoint {

/// A folder opened for reading. The constructor checks it whole, without reading the weights: each tensor that the
/// config calls for is there once with its shape and a type that can be read, and nothing else is, apart from buffers
/// that older transformers saved (attention masks, rotary frequencies) and a tied head's copy of the table, bit for bit
/// the same. Whatever is amiss is an input error naming the file, the tensor, and the shape expected and found.
///
/// Tensor names are accepted with the family's prefix ("transformer.", "gpt_neox.", "model.") and without it.
class HfFolder {
 public:
  explicit HfFolder(std::filesystem::path folder);

  const model::Config& config() const { return config_; }
  /// Token ids of config.json, and the weights' type: theirs if it is one, f32 if they differ or are F64.
  const model::HfExtras& extras() const { return extras_; }

  /// One parameter as fp32, its whole shape: padding rows become zero. `unit` and `parameter` are of
  /// model::units(config()).
  void read(const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) const;

  /// The stored tensor that holds `slice`.
  const files::StoredTensor& tensor(const model::HfSlice& slice) const;

 private:
  std::string stored_name(const std::string& name) const;
  void check_tensors();

  std::filesystem::path folder_;
  std::string config_file_;
  model::Config config_;
  model::HfExtras extras_;
  files::Safetensors tensors_;
  bool prefixed_ = true;
};

/// Fills `out` with a parameter's fp32 values, padding rows included.
using ParameterSource = std::function<void(const model::Unit&, const model::Parameter&, std::span<float>)>;

struct HfExport {
  model::HfExtras extras;  ///< type of the weights (f32, bf16 or f16, rounded to nearest) and token ids
  int64_t max_shard_bytes = 5'000'000'000;  ///< above this the weights are split into shards with an index
};

/// Writes config.json and the weights into a folder that exists, with the names and in the order in which transformers
/// writes them. `source` is asked for one parameter after the other, each once (once per shard, if its tensors are in
/// several); at most those of one layer are held at a time.
void write_hf(const std::filesystem::path& folder, const model::Config& config, const ParameterSource& source,
              const HfExport& options = {});

/// The same into a new folder that appears, whole, when everything is on disk; one of this name is replaced.
void export_hf(const std::filesystem::path& folder, const model::Config& config, const ParameterSource& source,
               const HfExport& options = {});

}  // namespace strata::checkpoint
