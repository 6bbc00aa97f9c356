#include "model/config.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace strata::model {

std::string_view name_of(Family family) {
  switch (family) {
    case Family::gpt2: return "gpt2";
    case Family::gpt_neox: return "gpt_neox";
    case Family::llama: return "llama";
  }
  return "?";
}

std::optional<Family> family_of(std::string_view name) {
  for (const Family family : {Family::gpt2, Family::gpt_neox, Family::llama})
    if (name == name_of(family)) return family;
  return std::nullopt;
}

int64_t Config::rotary_dims() const {
  // Truncated as transformers does: int(head_dim * fraction).
  return learned_positions() ? 0 : static_cast<int64_t>(static_cast<double>(head_dim) * rotary_fraction);
}

void validate(const Config& config, std::string_view where) {
  const auto fail = [&](const std::string& what) { throw input_error("{}: {}", where, what); };
  // The bounds are far beyond any model; they keep every count and byte total within 64 bits.
  const auto in_range = [&](std::string_view key, int64_t value, int64_t most) {
    if (value < 1 || value > most) fail(fmt::format("{} = {}; it must be from 1 to {}", key, value, most));
  };
  in_range("layers", config.layers, int64_t{1} << 14);
  in_range("hidden", config.hidden, int64_t{1} << 18);
  in_range("heads", config.heads, int64_t{1} << 14);
  in_range("kv_heads", config.kv_heads, int64_t{1} << 14);
  in_range("head_dim", config.head_dim, int64_t{1} << 14);
  in_range("ffn", config.ffn, int64_t{1} << 22);
  in_range("vocab", config.vocab, int64_t{1} << 26);
  in_range("sequence", config.sequence, int64_t{1} << 26);
  in_range("heads x head_dim", config.heads * config.head_dim, int64_t{1} << 20);

  const std::string_view family = name_of(config.family);
  if (config.heads % config.kv_heads != 0)
    fail(fmt::format("kv_heads = {} does not divide heads = {}", config.kv_heads, config.heads));
  if (config.family != Family::llama) {
    if (config.kv_heads != config.heads)
      fail(fmt::format("kv_heads = {} and heads = {}; {} has no grouped-query attention (family llama has)",
                       config.kv_heads, config.heads, family));
    if (config.heads * config.head_dim != config.hidden)
      fail(fmt::format("heads = {} of head_dim = {} make {}; in {} they must make hidden = {}", config.heads,
                       config.head_dim, config.heads * config.head_dim, family, config.hidden));
    if (config.activation == Activation::swiglu) fail(fmt::format("activation = swiglu; {} has GELU", family));
    if (!config.mlp_bias) fail(fmt::format("mlp_bias = false; {} always has these biases", family));
  } else if (config.activation != Activation::swiglu) {
    fail("activation is a GELU; llama has swiglu");
  }
  if (config.family == Family::gpt2 && !config.attention_bias)
    fail("attention_bias = false; gpt2 always has these biases");
  if (config.parallel_residual && config.family != Family::gpt_neox)
    fail(fmt::format("parallel_residual = true; only gpt_neox has it, not {}", family));

  if (!(config.norm_epsilon > 0 && config.norm_epsilon < 1))
    fail(fmt::format("norm_epsilon = {}; it must be above 0 and below 1", config.norm_epsilon));
  if (!(config.attention_dropout >= 0 && config.attention_dropout < 1))
    fail(fmt::format("attention_dropout = {}; it must be at least 0 and below 1", config.attention_dropout));
  if (!(config.dropout >= 0 && config.dropout < 1))
    fail(fmt::format("dropout = {}; it must be at least 0 and below 1", config.dropout));
  if (!(config.init_std >= 0 && std::isfinite(config.init_std)))
    fail(fmt::format("init_std = {}; it must be finite and not negative", config.init_std));

  if (config.learned_positions()) {
    if (config.rope_scaling) fail(fmt::format("rope_scaling is set; {} learns its positions", family));
    return;
  }
  if (!(config.rotary_base > 1 && std::isfinite(config.rotary_base)))
    fail(fmt::format("rotary_base = {}; it must be finite and above 1", config.rotary_base));
  if (!(config.rotary_fraction > 0 && config.rotary_fraction <= 1))
    fail(fmt::format("rotary_fraction = {}; it must be above 0 and at most 1", config.rotary_fraction));
  if (config.family == Family::llama && config.rotary_fraction != 1)
    fail(fmt::format("rotary_fraction = {}; llama turns whole heads (1)", config.rotary_fraction));
  if (const int64_t dims = config.rotary_dims(); dims < 2 || dims % 2 != 0)
    fail(fmt::format(
        "rotary_fraction = {} of head_dim = {} is {} dims; they turn in pairs, so it must be even and not 0",
        config.rotary_fraction, config.head_dim, dims));
  if (config.rope_scaling) {
    const RopeScaling& rope = *config.rope_scaling;
    if (!(rope.factor >= 1 && std::isfinite(rope.factor)))
      fail(fmt::format("rope_scaling.factor = {}; it must be at least 1", rope.factor));
    if (!(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor &&
          std::isfinite(rope.high_freq_factor)))
      fail(fmt::format(
          "rope_scaling: low_freq_factor = {} and high_freq_factor = {}; they must be above 0, the second larger",
          rope.low_freq_factor, rope.high_freq_factor));
    in_range("rope_scaling.original_sequence", rope.original_sequence, int64_t{1} << 26);
  }
}

int64_t parameter_count(const Config& config) {
  const int64_t h = config.hidden, q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const int64_t up = config.activation == Activation::swiglu ? 2 * config.ffn : config.ffn;
  const int64_t norm = config.rms_norm() ? h : 2 * h;
  int64_t layer = 2 * norm + (q + 2 * kv) * h + h * q + up * h + h * config.ffn;
  if (config.attention_bias) layer += q + 2 * kv + h;
  if (config.mlp_bias) layer += up + h;
  const int64_t positions = config.learned_positions() ? config.sequence * h : 0;
  return config.layers * layer + norm + positions + (config.tied ? 1 : 2) * config.vocab * h;
}

}  // namespace strata::model
