#include "ops/backward.h"

#include <utility>

#include "core/error.h"

namespace strata::ops {

ReverseWalk::ReverseWalk(Graph& graph, bool input_wanted) : graph_(graph), wanted_(graph.tensors.size(), false) {
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const Role role = graph.tensors[t].role;
    wanted_[t] = role == Role::parameter || role == Role::tied_parameter || (role == Role::input && input_wanted);
  }
  for (const Op& op : graph.ops) {
    bool any = false;
    for (int in : op.in) any = any || wanted_[static_cast<size_t>(in)];
    for (int out : op.out) wanted_[static_cast<size_t>(out)] = wanted_[static_cast<size_t>(out)] || any;
  }
}

int ReverseWalk::of(int tensor) const {
  const auto found = gradients_.find(tensor);
  return found == gradients_.end() ? -1 : found->second;
}

int ReverseWalk::fresh(int tensor) {
  const Tensor& like = graph_.tensors[static_cast<size_t>(tensor)];
  Tensor gradient;
  gradient.name = "d_" + like.name;
  gradient.dtype = like.dtype;
  gradient.shape = like.shape;
  return graph_.add(std::move(gradient));
}

void ReverseWalk::contribute(int tensor, int gradient) {
  const int before = of(tensor);
  if (before < 0) return set(tensor, gradient);
  const int sum = fresh(tensor);
  emit({.kind = Kind::add, .in = {before, gradient}, .out = {sum}, .half = Half::input});
  set(tensor, sum);
}

int ReverseWalk::of_parameter(int parameter) {
  const auto found = parameter_gradients_.find(parameter);
  if (found != parameter_gradients_.end()) return found->second;
  const Tensor& like = graph_.tensors[static_cast<size_t>(parameter)];
  const bool tied = like.role == Role::tied_parameter;
  Tensor gradient;
  gradient.name = "d_" + like.name;
  gradient.dtype = DType::f32;
  gradient.shape = like.shape;
  gradient.role = tied ? Role::tied_gradient : Role::gradient;
  gradient.offset = tied ? 0 : like.offset / size_of(like.dtype) * size_of(DType::f32);
  const int id = graph_.add(std::move(gradient));
  parameter_gradients_[parameter] = id;
  return id;
}

bool ReverseWalk::accumulates(int parameter) { return std::exchange(written_[parameter], true); }

int ReverseWalk::step_inputs() {
  for (size_t t = 0; t < graph_.tensors.size(); ++t)
    if (graph_.tensors[t].role == Role::step_inputs) return static_cast<int>(t);
  return graph_.add(
      {.name = "step_inputs", .dtype = DType::u8, .shape = {sizeof(StepInputs)}, .role = Role::step_inputs});
}

namespace {

/// Operands of an op whose last input may be a gradient to add to.
std::vector<int> with_addend(std::vector<int> in, int addend) {
  if (addend >= 0) in.push_back(addend);
  return in;
}

void norm_backward(const Op& op, ReverseWalk& walk, Kind kind) {
  // out: y, statistics...; in: x, gamma, (beta).
  const int dy = walk.of(op.out[0]), x = op.in[0], gamma = op.in[1];
  std::vector<int> in = {dy, x, gamma};
  in.insert(in.end(), op.out.begin() + 1, op.out.end());
  const int dx = walk.fresh(x);
  std::vector<int> out = {dx};
  bool accumulate = false;
  for (size_t parameter = 1; parameter < op.in.size(); ++parameter) {
    out.push_back(walk.of_parameter(op.in[parameter]));
    accumulate = walk.accumulates(op.in[parameter]);
  }
  walk.emit({.kind = kind,
             .in = with_addend(std::move(in), walk.of(x)),
             .out = std::move(out),
             .attributes = op.attributes,
             .accumulate = accumulate,
             .half = Half::input});
  walk.set(x, dx);
}

}  // namespace

void backward(const Op& op, ReverseWalk& walk) {
  const int dy = walk.of(op.out[0]);
  switch (op.kind) {
    case Kind::embedding: {
      const auto& attributes = op.as<EmbeddingAttributes>();
      Op out{.kind = Kind::embedding_backward,
             .in = {dy, op.in[0]},
             .out = {walk.of_parameter(op.in[1])},
             .attributes = attributes,
             .accumulate = walk.accumulates(op.in[1]),
             .half = Half::weight};
      if (op.in.size() > 2) {
        out.out.push_back(walk.of_parameter(op.in[2]));
        walk.accumulates(op.in[2]);
      }
      return walk.emit(std::move(out));
    }
    case Kind::layer_norm: return norm_backward(op, walk, Kind::layer_norm_backward);
    case Kind::rms_norm: return norm_backward(op, walk, Kind::rms_norm_backward);
    case Kind::linear: {
      const int x = op.in[0], w = op.in[1];
      // Input half first: it is what the unit before waits for.
      if (walk.wanted(x)) {
        const int dx = walk.fresh(x);
        walk.emit({.kind = Kind::linear_backward_input,
                   .in = with_addend({dy, w}, walk.of(x)),
                   .out = {dx},
                   .half = Half::input});
        walk.set(x, dx);
      }
      Op weight{.kind = Kind::linear_backward_weight,
                .in = {dy, x},
                .out = {walk.of_parameter(w)},
                .accumulate = walk.accumulates(w),
                .half = Half::weight};
      if (op.in.size() > 2) {
        weight.out.push_back(walk.of_parameter(op.in[2]));
        walk.accumulates(op.in[2]);
      }
      return walk.emit(std::move(weight));
    }
    case Kind::rotary: {
      RotaryAttributes attributes = op.as<RotaryAttributes>();
      attributes.inverse = true;
      const int dx = walk.fresh(op.in[0]);
      walk.emit(
          {.kind = Kind::rotary, .in = {dy, op.in[1]}, .out = {dx}, .attributes = attributes, .half = Half::input});
      return walk.contribute(op.in[0], dx);
    }
    case Kind::attention: {
      const int dqkv = walk.fresh(op.in[0]);
      std::vector<int> in = {dy, op.in[0], op.out[0], op.out[1]};
      in.insert(in.end(), op.in.begin() + 1, op.in.end());
      walk.emit({.kind = Kind::attention_backward,
                 .in = std::move(in),
                 .out = {dqkv},
                 .attributes = op.attributes,
                 .half = Half::input});
      return walk.contribute(op.in[0], dqkv);
    }
    case Kind::gelu:
    case Kind::swiglu: {
      const int dx = walk.fresh(op.in[0]);
      walk.emit({.kind = op.kind == Kind::gelu ? Kind::gelu_backward : Kind::swiglu_backward,
                 .in = {dy, op.in[0]},
                 .out = {dx},
                 .attributes = op.attributes,
                 .half = Half::input});
      return walk.contribute(op.in[0], dx);
    }
    case Kind::add:
      for (int in : op.in)
        if (walk.wanted(in)) walk.contribute(in, dy);
      return;
    case Kind::dropout: {
      const int dx = walk.fresh(op.in[0]);
      walk.emit({.kind = Kind::dropout,
                 .in = {dy, op.in[1], op.in[2]},
                 .out = {dx},
                 .attributes = op.attributes,
                 .half = Half::input});
      return walk.contribute(op.in[0], dx);
    }
    case Kind::cross_entropy: {
      const int logits = op.in[0], dlogits = walk.fresh(logits);
      walk.emit({.kind = Kind::cross_entropy_backward,
                 .in = {logits, op.out[1], op.in[1], walk.step_inputs()},
                 .out = {dlogits},
                 .attributes = op.attributes,
                 .half = Half::input});
      return walk.contribute(logits, dlogits);
    }
    default: STRATA_CHECK(false, "no backward rule for {}", name_of(op.kind));
  }
}

std::vector<Op> reverse(Graph& graph, int output, int output_gradient, int input, bool input_wanted) {
  ReverseWalk walk(graph, input_wanted);
  if (output_gradient >= 0) walk.set(output, output_gradient);
  const std::vector<Op> forward = graph.ops;
  for (auto op = forward.rbegin(); op != forward.rend(); ++op) {
    const bool is_loss = op->kind == Kind::cross_entropy;
    if (is_loss || (walk.of(op->out[0]) >= 0 && walk.wanted(op->out[0]))) backward(*op, walk);
  }
  if (input_wanted && input >= 0) {
    const int gradient = walk.of(input);
    STRATA_CHECK(gradient >= 0, "the unit's input takes no part in its output");
    Tensor& tensor = graph.tensors[static_cast<size_t>(gradient)];
    STRATA_CHECK(tensor.role == Role::temporary, "a unit that passes its input on unchanged");
    tensor.role = Role::input_gradient;
  }
  return walk.take();
}

}  // namespace strata::ops
