#pragma once
// Small jobs for tests of the lowering.

#include "job/job.h"

namespace strata::step {

inline job::Job small_job(model::Family family = model::Family::gpt2) {
  job::Job job;
  model::Config& m = job.model;
  m.family = family;
  m.layers = 3;
  m.hidden = 64;
  m.heads = m.kv_heads = 4;
  m.head_dim = 16;
  m.ffn = 256;
  m.vocab = 211;
  m.sequence = 48;
  m.tied = family == model::Family::gpt2;
  if (family == model::Family::gpt_neox) {
    m.activation = model::Activation::gelu_exact;
    m.rotary_fraction = 0.25;
    m.parallel_residual = true;
  }
  if (family == model::Family::llama) {
    m.activation = model::Activation::swiglu;
    m.heads = 8;
    m.kv_heads = 4;
    m.head_dim = 8;
    m.ffn = 160;
    m.attention_bias = m.mlp_bias = false;
  }
  job.batch = {.global = 8, .micro = 4, .sequence = 32};
  job.run.steps = 10;
  return job;
}

}  // namespace strata::step
