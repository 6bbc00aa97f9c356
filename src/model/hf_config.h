#pragma once
// Hugging Face's config.json, read and written for gpt2, gpt_neox and llama as transformers 4 and 5 spell it.
//
// Both spellings are read, and where a fact stands in two places (rope_theta at the top and in rope_parameters) the two
// must agree. What Strata does not compute is refused by the key's name; keys without a bearing on the forward pass or
// on training are ignored. Absent keys mean what transformers means by their absence, except that the dimensions must
// be given.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "model/config.h"

namespace strata::model {

/// Facts of a config.json that are no part of the model.
struct HfExtras {
  DType dtype = DType::f32;          ///< of the weights beside it: f32, bf16 or f16; not read back, the weights tell
  std::optional<int64_t> bos_token;  ///< bos_token_id
  std::vector<int64_t> eos_tokens;   ///< eos_token_id, one or several; none: transformers generates up to its limit
};

/// The model that `json_text` describes, validated. `file` opens every message. Its initialisation is `gpt2` with
/// initializer_range, unless the file was written by to_hf_config.
///
/// Dropout: `dropout` is Strata's on embedding and residual branches, so gpt2's embd_pdrop and resid_pdrop must be
/// equal. Dropout inside attention is read, and a model that has it can do everything but be trained.
Config from_hf_config(std::string_view json_text, std::string_view file);

/// The token ids of the same file.
HfExtras hf_extras(std::string_view json_text, std::string_view file);

/// A config.json that transformers 4 and 5 both load as this model, and that from_hf_config reads back as an equal
/// Config (facts that Hugging Face has no key for are kept under "strata", which transformers carries along). Throws an
/// input error for a model that the family's class in transformers cannot be.
std::string to_hf_config(const Config& config, const HfExtras& extras = {});

}  // namespace strata::model
