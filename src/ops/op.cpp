#include "ops/op.h"

#include "core/error.h"

namespace strata::ops {

Shape::Shape(std::initializer_list<int64_t> extents) : rank(static_cast<int>(extents.size())) {
  STRATA_CHECK(extents.size() <= extent.size());
  size_t axis = 0;
  for (int64_t e : extents) extent[axis++] = e;
}

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int axis = 0; axis < rank; ++axis) n *= extent[static_cast<size_t>(axis)];
  return n;
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::temporary: return "temporary";
    case Role::parameter: return "parameter";
    case Role::gradient: return "gradient";
    case Role::tied_parameter: return "tied_parameter";
    case Role::tied_gradient: return "tied_gradient";
    case Role::feedback: return "feedback";
    case Role::master: return "master";
    case Role::moment1: return "moment1";
    case Role::moment2: return "moment2";
    case Role::input: return "input";
    case Role::output: return "output";
    case Role::input_gradient: return "input_gradient";
    case Role::output_gradient: return "output_gradient";
    case Role::saved: return "saved";
    case Role::held: return "held";
    case Role::constant: return "constant";
    case Role::tokens: return "tokens";
    case Role::targets: return "targets";
    case Role::sequence_ids: return "sequence_ids";
    case Role::document_starts: return "document_starts";
    case Role::step_inputs: return "step_inputs";
    case Role::step_results: return "step_results";
    case Role::loss: return "loss";
    case Role::norm_sum: return "norm_sum";
    case Role::cache: return "cache";
    case Role::logits: return "logits";
  }
  return "?";
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::embedding: return "embedding";
    case Kind::layer_norm: return "layer_norm";
    case Kind::rms_norm: return "rms_norm";
    case Kind::linear: return "linear";
    case Kind::rotary: return "rotary";
    case Kind::attention: return "attention";
    case Kind::cached_attention: return "cached_attention";
    case Kind::gelu: return "gelu";
    case Kind::swiglu: return "swiglu";
    case Kind::add: return "add";
    case Kind::dropout: return "dropout";
    case Kind::cross_entropy: return "cross_entropy";
    case Kind::embedding_backward: return "embedding_backward";
    case Kind::layer_norm_backward: return "layer_norm_backward";
    case Kind::rms_norm_backward: return "rms_norm_backward";
    case Kind::linear_backward_input: return "linear_backward_input";
    case Kind::linear_backward_weight: return "linear_backward_weight";
    case Kind::attention_backward: return "attention_backward";
    case Kind::gelu_backward: return "gelu_backward";
    case Kind::swiglu_backward: return "swiglu_backward";
    case Kind::cross_entropy_backward: return "cross_entropy_backward";
    case Kind::fill_zero: return "fill_zero";
    case Kind::grad_norm: return "grad_norm";
    case Kind::clip: return "clip";
    case Kind::adamw: return "adamw";
  }
  return "?";
}

std::vector<int> in_place_inputs(const Op& op) {
  const int inputs = static_cast<int>(op.in.size());
  switch (op.kind) {
    case Kind::rotary:
    case Kind::gelu:
    case Kind::dropout:
    case Kind::cross_entropy_backward: return {0};
    case Kind::add: return inputs == 3 ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1};
    case Kind::gelu_backward: return {0, 1};
    case Kind::swiglu_backward: return {1};
    // The addend is the last input, where there is one.
    case Kind::layer_norm_backward: return inputs == 6 ? std::vector<int>{5} : std::vector<int>{};
    case Kind::rms_norm_backward: return inputs == 5 ? std::vector<int>{4} : std::vector<int>{};
    case Kind::linear_backward_input: return inputs == 3 ? std::vector<int>{2} : std::vector<int>{};
    default: return {};
  }
}

bool updates_output(const Op& op, const Tensor& output) {
  if (op.kind == Kind::grad_norm) return true;
  // AdamW's copy of the weights in the compute type is only written.
  if (op.kind == Kind::adamw) return output.role != Role::parameter || output.dtype == DType::f32;
  return op.accumulate && (output.role == Role::gradient || output.role == Role::tied_gradient);
}

int written_input(const Op& op) { return op.kind == Kind::cached_attention ? 1 : -1; }

}  // namespace strata::ops
