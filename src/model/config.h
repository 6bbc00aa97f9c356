#pragma once
// A GPT-style model's dimensions: everything that its operations and parameters follow from.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::model {

enum class Family : uint8_t { gpt2, gpt_neox, llama };
std::string_view name_of(Family family);  ///< "gpt2", "gpt_neox", "llama"
std::optional<Family> family_of(std::string_view name);

enum class Activation : uint8_t { gelu_exact, gelu_tanh, swiglu };
enum class Initialisation : uint8_t {
  gpt2,  ///< normal(0, init_std); projections into the residual divided by sqrt(2 layers)
  small_wang,  ///< small_init: std = sqrt(2 / (5 hidden)); wang_init for projections into the residual: 2 / (layers sqrt(hidden))
};

/// Llama 3's stretching of low rotary frequencies (transformers' rope_type "llama3").
struct RopeScaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_sequence = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct Config {
  std::string preset;  ///< name of the file in models/ it came from, if any
  Family family = Family::gpt2;
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t kv_heads = 0;  ///< = heads unless grouped-query
  int64_t head_dim = 0;  ///< hidden / heads unless given
  int64_t ffn = 0;       ///< inner width of the MLP
  int64_t vocab = 0;     ///< true size; rows added as padding are never saved
  int64_t sequence = 0;  ///< longest sequence (learned positions, rotary table)
  Activation activation = Activation::gelu_tanh;
  double norm_epsilon = 1e-5;
  double rotary_fraction = 1;  ///< of head_dim, gpt_neox and llama
  double rotary_base = 10000;
  std::optional<RopeScaling> rope_scaling;
  bool parallel_residual = false;               ///< gpt_neox: y = x + attention(norm1 x) + mlp(norm2 x)
  bool tied = false;                            ///< head uses the embedding's table
  bool attention_bias = true, mlp_bias = true;  ///< on the linears (llama: off)
  double dropout = 0;                           ///< embedding and residual branches
  double attention_dropout = 0;  ///< on attention's weights: kept for files, 0 is all that can be trained
  Initialisation initialisation = Initialisation::gpt2;
  double init_std = 0.02;

  int64_t padded_vocab() const { return (vocab + 127) / 128 * 128; }
  int64_t rotary_dims() const;
  bool learned_positions() const { return family == Family::gpt2; }
  bool rms_norm() const { return family == Family::llama; }
  bool operator==(const Config&) const = default;
};

/// Throws an input error naming the key when the dimensions make no model. `where` (a file) opens the message.
void validate(const Config& config, std::string_view where);

/// True parameters (padding not counted; a tied table once).
int64_t parameter_count(const Config& config);

}  // namespace strata::model
