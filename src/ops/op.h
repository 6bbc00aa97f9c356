#pragma once
// Operation records: what is computed, on what, as plain data. No memory, no device, no model.
//
// A block (src/step) owns a list of tensors and a list of operations whose operands index that list. The tables of
// operands below are the contract between the models that list operations, the backward rules and costs in this folder,
// and the devices that run them. T = tokens of a micro-batch (batch x sequence, batch outermost), row-major everywhere.
//
// Types: activations, their gradients and parameters share one compute type, f32, bf16 or f16; kernels compute in fp32
// (matrix products sum in it) and round once, to nearest even, when they store. Statistics (mean, rstd, lse), tables of
// angles and gradients of parameters are f32 whatever the compute type.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/types.h"

namespace strata::ops {

/// Up to four extents, outermost first.
struct Shape {
  std::array<int64_t, 4> extent{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);
  int64_t operator[](int axis) const { return extent[static_cast<size_t>(axis)]; }
  int64_t elements() const;
  bool operator==(const Shape&) const = default;
};

/// Where a tensor's bytes come from. The step program binds each role to a buffer; devices do not care.
enum class Role : uint8_t {
  temporary,        ///< lives inside one block run
  parameter,        ///< a view into the unit's flat weights
  gradient,         ///< a view into the unit's flat gradient
  tied_parameter,   ///< a view into another unit's flat weights (a tied head reads the embedding's table)
  tied_gradient,    ///< the head's own accumulator for the table it shares
  feedback,         ///< f32, what lossy wires have not delivered yet of a unit's gradient
  master,           ///< fp32 weights over the unit's optimizer shard, where the compute type is another
  moment1,          ///< AdamW's first moment, over the unit's optimizer shard
  moment2,          ///< and its second
  input,            ///< the unit's input activation
  output,           ///< the unit's output activation
  input_gradient,   ///< gradient that the unit hands to the one before
  output_gradient,  ///< gradient that the unit receives from the one after
  saved,            ///< kept from forward to backward
  held,             ///< kept from a backward's input half to its weight half
  constant,         ///< filled once before the first step (rotary table)
  tokens,           ///< i32 [T], token ids
  targets,          ///< i32 [T], next token ids, negative where the loss does not count
  sequence_ids,     ///< i64 [batch], each sequence's index in the whole run, for dropout
  document_starts,  ///< i32 [T], for each token where its document begins, as a position in its sequence
  step_inputs,      ///< StepInputs
  step_results,     ///< StepResults
  loss,             ///< f64 [1], the micro-batch's summed loss
  norm_sum,         ///< i64 [norm_limbs], the gradient norm's wide sum
  cache,            ///< keys and values of earlier positions
  logits,           ///< what generation reads
};
std::string_view name_of(Role role);

/// One value inside a block.
struct Tensor {
  std::string name{};
  DType dtype = DType::f32;
  Shape shape{};
  Role role = Role::temporary;
  int formal = -1;     ///< which of the block's formals holds it; set by the lowering
  int64_t offset = 0;  ///< bytes from the start of that formal; for parameters and gradients set by the model
  int64_t bytes() const { return shape.elements() * size_of(dtype); }
};

/// What a step is told from outside: everything that depends on data or on the step number. Lives in device memory.
struct StepInputs {
  float grad_scale = 1;  ///< backward starts from this: loss scale / tokens that count in the global batch
  float inverse_loss_scale = 1;
  float learning_rate = 0;
  float bias1 = 1, bias2 = 1;  ///< 1 - beta^t of the update about to be made
  int32_t position = 0;        ///< generation: index of the first new token
  int32_t new_tokens = 0;      ///< generation: how many of the block's token rows are real
  int32_t reserved = 0;
  uint64_t seed = 0;
  uint64_t step = 0;
};

/// What a step tells: lives in device memory, read by the host when the step is done.
struct StepResults {
  double grad_norm = 0;   ///< global, before clipping, loss scale removed
  float clip_factor = 1;  ///< gradients were multiplied by this (loss scale apart)
  int32_t skipped = 0;    ///< 1: some gradient was not finite and no state was changed
};

/// The gradient norm's exact accumulator: a fixed-point number in base 2^32, least limb first, each limb an i64 so that
/// sums over grains and ranks are plain integer additions, in any order, without carries in between.
/// Bit 0 of limb 0 weighs 2^-norm_fraction_bits; values below that are dropped, grain by grain.
inline constexpr int norm_limbs = 16;
inline constexpr int norm_fraction_bits = 192;

/// Elements of a grain: every cut of a flat vector is a multiple of it, and norms are summed per grain.
inline constexpr int64_t grain = 2048;

enum class Kind : uint8_t {
  // kind                       in                                             out
  embedding,         // tokens, table[V,h], (positions[S,h])           y[T,h]
  layer_norm,        // x[T,h], gamma[h], beta[h]                      y[T,h], mean[T], rstd[T]
  rms_norm,          // x[T,h], gamma[h]                               y[T,h], rstd[T]
  linear,            // x[T,i], w[o,i], (b[o])                         y[T,o]
  rotary,            // x[T,(q+2kv)d], table[S,r] (cos r/2 | sin r/2)  y, same shape; may be in place
  attention,         // qkv[T,(q+2kv)d], (document_starts)             y[T,q d], lse[batch,q,S]
  cached_attention,  // qkv[n,(q+2kv)d], cache[S,2kv d], step_inputs   y[n,q d]; appends to the cache
  gelu,              // x                                              y; may be in place
  swiglu,            // x[T,2f] (gate | up)                            y[T,f] = silu(gate) * up
  add,               // a, b, (c)                                      y; may be in place on any
  dropout,           // x[T,h], sequence_ids, step_inputs              y; may be in place
  cross_entropy,     // logits[T,Vp], targets                          loss f64[1], lse[T]
  // Backward. `(addend)` is added to the result: the gradient that reached the same tensor before. May be in place on it.
  embedding_backward,      // dy, tokens                                     dtable, (dpositions)
  layer_norm_backward,     // dy, x, gamma, mean, rstd, (addend)             dx, dgamma, dbeta
  rms_norm_backward,       // dy, x, gamma, rstd, (addend)                   dx, dgamma
  linear_backward_input,   // dy[T,o], w[o,i], (addend)                      dx[T,i]
  linear_backward_weight,  // dy[T,o], x[T,i]                                dw[o,i], (db[o])
  attention_backward,      // dy, qkv, y, lse, (document_starts)             dqkv
  gelu_backward,           // dy, x                                          dx; may be in place on either
  swiglu_backward,         // dy, x[T,2f]                                    dx[T,2f]; may be in place on x
  cross_entropy_backward,  // logits, lse, targets, step_inputs              dlogits; may be in place
  // Update and housekeeping.
  fill_zero,  //                                                y
  grad_norm,  // g (whole grains)                               norm_sum, added to
  clip,       // norm_sum, step_inputs                          step_results
  adamw,      // g, step_inputs, step_results                   w, moment1, moment2, (scale1, scale2), (copy)
};            // all f32 and updated in place, except: 8-bit moments (AdamWAttributes::block) are u8 with an f32 scale a
              // block; copy is written, w in the compute type
std::string_view name_of(Kind kind);

/// Backward passes split into the half that the previous unit waits for and the half that only the update needs.
enum class Half : uint8_t { none, input, weight };

struct NoAttributes {};
struct NormAttributes {
  float epsilon = 1e-5f;
};
struct RotaryAttributes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_dims = 0;  ///< the first of each head's dims are turned, in halves: (i, i + rotary_dims/2)
  int64_t sequence = 0;     ///< a token's position is its row modulo this (plus StepInputs::position when generating)
  bool inverse = false;     ///< backward: turn the other way
  bool cached = false;      ///< generating: positions start at StepInputs::position (then step_inputs is a third input)
};
struct AttentionAttributes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, sequence = 0;
  float scale = 0;  ///< on the scores; causal always; with document_starts, nothing before a token's document is seen
};
struct EmbeddingAttributes {
  int64_t sequence = 0;
  bool cached = false;  ///< generating: positions start at StepInputs::position (then step_inputs is the last input)
};
struct GeluAttributes {
  bool tanh = false;
};
struct DropoutAttributes {
  float probability = 0;
  uint32_t site = 0;  ///< which dropout of the unit: 0, 1, ...
  int64_t sequence = 0;
};
struct CrossEntropyAttributes {
  int64_t vocab = 0;
};  ///< true size; columns past it are padding and do not exist
struct ClipAttributes {
  float max_norm = 0;
};  ///< 0: no clipping
/// Elements [begin, end) of a flat vector, and whether weight decay applies to them.
struct DecayRange {
  int64_t begin = 0, end = 0;
  bool decay = false;
};
struct AdamWAttributes {
  double beta1 = 0.9, beta2 = 0.999;  ///< in double: 1 - beta2 in fp32 would be off by 1e-5 of itself
  float epsilon = 1e-8f, weight_decay = 0;
  std::vector<DecayRange> ranges;  ///< within the shard at hand; elements in no range are padding and stay zero
  int64_t block = 0;  ///< elements of 8-bit moments that share a scale, a divisor of the grain; 0: moments are f32
};

using Attributes =
    std::variant<NoAttributes, NormAttributes, RotaryAttributes, AttentionAttributes, EmbeddingAttributes,
                 GeluAttributes, DropoutAttributes, CrossEntropyAttributes, ClipAttributes, AdamWAttributes>;

struct Op {
  Kind kind;
  std::vector<int> in{}, out{};  ///< indices into the block's tensors, in the order of the table above
  Attributes attributes{};
  bool accumulate = false;  ///< weight-gradient outputs are added to instead of overwritten
  Half half = Half::none;
  bool remade = false;  ///< a forward operation listed again in a backward
  int workspace = -1;   ///< temporary for the device's own use, if it asked for one; after `out` among operands

  template <typename A>
  const A& as() const {
    return std::get<A>(attributes);
  }
};

/// Which inputs output 0 may overwrite: indices into Op::in, in order of preference.
std::vector<int> in_place_inputs(const Op& op);

/// True if the operation reads what this output of it holds before it writes it.
bool updates_output(const Op& op, const Tensor& output);
/// Input that the operation writes as well (the cache that generation appends to), as an index into Op::in, or -1.
int written_input(const Op& op);

/// Tensors and the operations over them, in an order that may be run.
struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  int add(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return static_cast<int>(tensors.size()) - 1;
  }
};

}  // namespace strata::ops
