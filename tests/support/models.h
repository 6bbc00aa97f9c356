#pragma once
// Small models of each family, odd enough that no two dimensions are the same by chance.

#include <vector>

#include "model/config.h"

namespace strata::test {

inline model::Config tiny_gpt2() {
  model::Config c;
  c.family = model::Family::gpt2;
  c.layers = 2, c.hidden = 24, c.heads = c.kv_heads = 3, c.head_dim = 8, c.ffn = 56, c.vocab = 37, c.sequence = 19;
  c.activation = model::Activation::gelu_tanh;
  c.tied = true;
  c.dropout = 0.125;
  return c;
}

inline model::Config tiny_neox() {
  model::Config c;
  c.family = model::Family::gpt_neox;
  c.layers = 2, c.hidden = 24, c.heads = c.kv_heads = 3, c.head_dim = 8, c.ffn = 56, c.vocab = 37, c.sequence = 19;
  c.activation = model::Activation::gelu_exact;
  c.rotary_fraction = 0.25;
  c.rotary_base = 12345;
  c.parallel_residual = true;
  c.initialisation = model::Initialisation::small_wang;
  return c;
}

inline model::Config tiny_llama() {
  model::Config c;
  c.family = model::Family::llama;
  c.layers = 2, c.hidden = 24, c.heads = 4, c.kv_heads = 2, c.head_dim = 10, c.ffn = 56, c.vocab = 37, c.sequence = 19;
  c.activation = model::Activation::swiglu;
  c.norm_epsilon = 1e-6;
  c.attention_bias = c.mlp_bias = false;
  c.rotary_base = 500000;
  c.rope_scaling =
      model::RopeScaling{.factor = 32, .low_freq_factor = 1, .high_freq_factor = 4, .original_sequence = 11};
  return c;
}

/// Each family in several forms: tied and untied, with and without biases.
inline std::vector<model::Config> tiny_models() {
  std::vector<model::Config> models = {tiny_gpt2(), tiny_neox(), tiny_llama()};
  model::Config c = tiny_gpt2();
  c.tied = false, c.ffn = 4 * c.hidden, c.dropout = 0, c.activation = model::Activation::gelu_exact;
  models.push_back(c);
  c = tiny_neox();
  c.tied = true, c.attention_bias = false, c.parallel_residual = false, c.activation = model::Activation::gelu_tanh;
  c.dropout = 0.25, c.rotary_fraction = 1, c.rope_scaling = model::RopeScaling{}, c.preset = "some-preset";
  models.push_back(c);
  c = tiny_llama();
  c.tied = c.attention_bias = c.mlp_bias = true, c.rope_scaling.reset(), c.dropout = 0.1, c.kv_heads = c.heads;
  models.push_back(c);
  return models;
}

}  // namespace strata::test
