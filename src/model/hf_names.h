#pragma once
// Where each of our parameters lies in a Hugging Face model: tensor names, shapes and layouts, family by family.
//
// Ours (model/unit.h): matrices [out, in]; attention.qkv rows are all queries, then all keys, then all values, each
// head by head. Theirs:
//
//   gpt2      h.i.attn.c_attn is [in, out] (Conv1D: transposed against a linear), its columns q | k | v, each head by
//             head: after transposing, our rows exactly. c_proj and c_fc are transposed too; biases are the same.
//   gpt_neox  attention.query_key_value is [out, in], its rows head by head, and in each head q, k, v of head_dim rows:
//             [heads, (q, k, v), head_dim]. Ours is [(q, k, v), heads, head_dim], so rows move; the bias likewise.
//   llama     q_proj, k_proj, v_proj are [out, in], each head by head: three ranges of our rows. gate_proj and up_proj
//             are the two halves of our mlp.up.
//
// Rotary: gpt_neox and llama in this format pair dim i with dim i + rotary_dims/2 inside a head, as our rotary
// operation does, so heads keep the order of their dims.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/unit.h"

namespace strata::model {

/// A range of a parameter's rows that is one Hugging Face tensor.
struct HfSlice {
  enum class Layout : uint8_t {
    same,          ///< row-major rows, as ours
    transposed,    ///< [in, out]
    per_head_qkv,  ///< rows [heads, (q, k, v), head_dim]; ours [(q, k, v), heads, head_dim]
  };
  std::string
      name;  ///< with the prefix that transformers' language models save ("transformer.", "gpt_neox.", "model.")
  ops::Shape shape;  ///< as stored there: true rows only
  Layout layout = Layout::same;
  int64_t row_begin = 0, rows = 0;  ///< of the parameter
};

/// The tensors that hold `parameter` of `unit`, in order of its rows; together they are its true rows.
std::vector<HfSlice> hf_slices(const Config& config, const Unit& unit, const Parameter& parameter);

/// The prefix that names of the model without its head lack: "transformer.", "gpt_neox." or "model.".
std::string_view hf_prefix(Family family);

/// Whether a tensor (prefix taken off) is one that older transformers saved beside the parameters and that follows from
/// the config: attention masks and rotary frequencies.
bool hf_is_buffer(Family family, std::string_view name);

/// The name under which a tied model may have saved its table a second time: "lm_head.weight" or "embed_out.weight".
std::string_view hf_head_name(Family family);

/// Copies one slice's values into the layout of Hugging Face. `parameter_values` is the whole parameter, padding rows
/// included (weights, or a gradient of the same shape); `tensor` has shape.elements().
void to_hf(const Config& config, const Parameter& parameter, const HfSlice& slice,
           std::span<const float> parameter_values, std::span<float> tensor);

/// The reverse: writes the slice's rows of `parameter_values`, and no others.
void from_hf(const Config& config, const Parameter& parameter, const HfSlice& slice, std::span<const float> tensor,
             std::span<float> parameter_values);

}  // namespace strata::model
