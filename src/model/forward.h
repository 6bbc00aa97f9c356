#pragma once
// The forward operations of each unit, family by family. Only forward: backward follows by rule (ops/backward.h).

#include "model/config.h"
#include "model/unit.h"
#include "ops/op.h"

namespace strata::model {

/// What the operations are listed for.
enum class Use : uint8_t {
  train,     ///< ends in the loss; dropout on
  evaluate,  ///< ends in the loss; dropout off
  generate,  ///< one sequence, `batch * sequence` new rows, keys and values in a cache; ends in logits
};

struct Dimensions {
  int64_t batch = 1;     ///< sequences in a micro-batch
  int64_t sequence = 0;  ///< tokens of each; when generating, rows a run can take
  DType compute = DType::f32;
  bool documents = false;  ///< attention stays inside documents: role document_starts says where each begins
  int64_t tokens() const { return batch * sequence; }
};

/// One unit's forward. Tensors carry roles; the unit's result has role `output` (a loss or logits for the head).
/// `keep_logits`: an evaluation's logits come out as well. Parameters are views at the offsets that `unit` gives, in elements of `compute` type times its size.
ops::Graph forward(const Config& config, const Unit& unit, const Dimensions& dimensions, Use use,
                   bool keep_logits = false);

/// cos and sin of every position's angles, [sequence, rotary_dims] as (cos | sin), angles computed in fp32 as transformers does.
std::vector<float> rotary_table(const Config& config, int64_t sequence);

/// A unit's part of train_flops_per_token.
double unit_flops_per_token(const Config& config, const Unit& unit, int64_t sequence);

/// Model FLOPs of training on one token, by the field's convention: 3 x forward, 2 per multiply-add, attention's full
/// square counted: 6 x (weights of matrix products) + 12 layers heads head_dim sequence (Narayanan et al. 2021, eq. 3,
/// with each family's true weights in place of 12 l h^2).
double train_flops_per_token(const Config& config, int64_t sequence);

}  // namespace strata::model
