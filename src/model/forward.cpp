#include "model/forward.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace strata::model {

using ops::Kind;
using ops::Role;

namespace {

/// Lists a unit's operations; each method returns the tensor that holds the result.
class Lister {
 public:
  Lister(const Config& config, const Unit& unit, const Dimensions& dimensions, Use use)
      : config_(config), unit_(unit), dim_(dimensions), use_(use) {}

  ops::Graph finish() { return std::move(graph_); }
  ops::Tensor& tensor(int id) { return graph_.tensors[static_cast<size_t>(id)]; }

  int activation(std::string name, int64_t width, Role role = Role::temporary) {
    return graph_.add({.name = std::move(name), .dtype = dim_.compute, .shape = {dim_.tokens(), width}, .role = role});
  }
  int outside(std::string name, DType dtype, ops::Shape shape, Role role) {
    return graph_.add({.name = std::move(name), .dtype = dtype, .shape = shape, .role = role});
  }

  bool has(std::string_view name) const {
    for (const Parameter& p : unit_.parameters)
      if (p.name == name) return true;
    return false;
  }
  int parameter(std::string_view name) {
    const Parameter& p = unit_.parameter(name);
    return graph_.add({.name = p.name,
                       .dtype = dim_.compute,
                       .shape = p.shape,
                       .role = Role::parameter,
                       .offset = p.offset * size_of(dim_.compute)});
  }
  int step_inputs() {
    if (step_inputs_ < 0)
      step_inputs_ = outside("step_inputs", DType::u8, {sizeof(ops::StepInputs)}, Role::step_inputs);
    return step_inputs_;
  }

  int norm(int x, const std::string& name) {
    const int y = activation(name, config_.hidden);
    const int64_t rows = dim_.tokens();
    ops::Op op{.kind = config_.rms_norm() ? Kind::rms_norm : Kind::layer_norm,
               .in = {x, parameter(name + ".weight")},
               .out = {y},
               .attributes = ops::NormAttributes{static_cast<float>(config_.norm_epsilon)}};
    if (!config_.rms_norm()) {
      op.in.push_back(parameter(name + ".bias"));
      op.out.push_back(graph_.add({.name = name + ".mean", .dtype = DType::f32, .shape = {rows}}));
    }
    op.out.push_back(graph_.add({.name = name + ".rstd", .dtype = DType::f32, .shape = {rows}}));
    graph_.ops.push_back(std::move(op));
    return y;
  }

  int linear(int x, const std::string& name) {
    const int weight = parameter(name + ".weight");
    const int y = activation(name, tensor(weight).shape[0]);
    ops::Op op{.kind = Kind::linear, .in = {x, weight}, .out = {y}};
    if (has(name + ".bias")) op.in.push_back(parameter(name + ".bias"));
    graph_.ops.push_back(std::move(op));
    return y;
  }

  int rotate(int qkv) {
    const int64_t dims = config_.rotary_dims();
    if (config_.learned_positions() || dims == 0) return qkv;
    const bool cached = use_ == Use::generate;
    const int y = activation("rotated", tensor(qkv).shape[1]);
    const int table =
        outside("rotary_table", DType::f32, {cached ? config_.sequence : dim_.sequence, dims}, Role::constant);
    ops::Op op{.kind = Kind::rotary,
               .in = {qkv, table},
               .out = {y},
               .attributes = ops::RotaryAttributes{.heads = config_.heads,
                                                   .kv_heads = config_.kv_heads,
                                                   .head_dim = config_.head_dim,
                                                   .rotary_dims = dims,
                                                   .sequence = dim_.sequence,
                                                   .cached = cached}};
    if (cached) op.in.push_back(step_inputs());
    graph_.ops.push_back(std::move(op));
    return y;
  }

  int attention(int qkv) {
    const int y = activation("attention", config_.heads * config_.head_dim);
    ops::AttentionAttributes attributes{
        .heads = config_.heads,
        .kv_heads = config_.kv_heads,
        .head_dim = config_.head_dim,
        .sequence = dim_.sequence,
        .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)))};
    if (use_ == Use::generate) {
      attributes.sequence = config_.sequence;
      const int cache =
          outside("cache", dim_.compute, {config_.sequence, 2 * config_.kv_heads * config_.head_dim}, Role::cache);
      graph_.ops.push_back(
          {.kind = Kind::cached_attention, .in = {qkv, cache, step_inputs()}, .out = {y}, .attributes = attributes});
      return y;
    }
    const int lse =
        graph_.add({.name = "attention.lse", .dtype = DType::f32, .shape = {dim_.batch, config_.heads, dim_.sequence}});
    ops::Op op{.kind = Kind::attention, .in = {qkv}, .out = {y, lse}, .attributes = attributes};
    if (dim_.documents) op.in.push_back(outside("document_starts", DType::i32, {dim_.tokens()}, Role::document_starts));
    graph_.ops.push_back(std::move(op));
    return y;
  }

  int activate(int x) {
    const bool swiglu = config_.activation == Activation::swiglu;
    const int y = activation("mlp.activation", swiglu ? config_.ffn : tensor(x).shape[1]);
    ops::Op op{.kind = swiglu ? Kind::swiglu : Kind::gelu, .in = {x}, .out = {y}};
    if (!swiglu) op.attributes = ops::GeluAttributes{config_.activation == Activation::gelu_tanh};
    graph_.ops.push_back(std::move(op));
    return y;
  }

  int add(std::vector<int> terms, std::string name, Role role = Role::temporary) {
    const int y = activation(std::move(name), config_.hidden, role);
    graph_.ops.push_back({.kind = Kind::add, .in = std::move(terms), .out = {y}});
    return y;
  }

  /// `x` itself where nothing is dropped.
  int dropout(int x, uint32_t site, Role role = Role::temporary) {
    if (use_ != Use::train || config_.dropout == 0) {
      if (role != Role::temporary) tensor(x).role = role;
      return x;
    }
    const int y = activation("dropout", config_.hidden, role);
    const int ids = outside("sequence_ids", DType::i64, {dim_.batch}, Role::sequence_ids);
    graph_.ops.push_back(
        {.kind = Kind::dropout,
         .in = {x, ids, step_inputs()},
         .out = {y},
         .attributes = ops::DropoutAttributes{static_cast<float>(config_.dropout), site, dim_.sequence}});
    return y;
  }

  void embedding() {
    const int tokens = outside("tokens", DType::i32, {dim_.tokens()}, Role::tokens);
    const int table = parameter("table");
    const int y = activation("embedded", config_.hidden);
    ops::Op op{.kind = Kind::embedding,
               .in = {tokens, table},
               .out = {y},
               .attributes = ops::EmbeddingAttributes{dim_.sequence, use_ == Use::generate}};
    if (config_.learned_positions()) op.in.push_back(parameter("positions"));
    if (use_ == Use::generate) op.in.push_back(step_inputs());
    graph_.ops.push_back(std::move(op));
    dropout(y, 0, Role::output);
  }

  void layer() {
    const int x = activation("x", config_.hidden, Role::input);
    const int a = dropout(linear(attention(rotate(linear(norm(x, "norm1"), "attention.qkv"))), "attention.out"), 0);
    if (config_.parallel_residual) {
      const int m = dropout(linear(activate(linear(norm(x, "norm2"), "mlp.up")), "mlp.down"), 1);
      add({m, a, x}, "y", Role::output);
    } else {
      const int r = add({x, a}, "residual");
      const int m = dropout(linear(activate(linear(norm(r, "norm2"), "mlp.up")), "mlp.down"), 1);
      add({r, m}, "y", Role::output);
    }
  }

  void head(bool keep_logits) {
    const int x = activation("x", config_.hidden, Role::input);
    const int n = norm(x, "norm");
    const int table = has("table") ? parameter("table")
                                   : graph_.add({.name = "table",
                                                 .dtype = dim_.compute,
                                                 .shape = {config_.padded_vocab(), config_.hidden},
                                                 .role = Role::tied_parameter});
    const bool loss_wanted = use_ != Use::generate;
    const bool keep = !loss_wanted || (keep_logits && use_ == Use::evaluate);
    const int logits = activation("logits", config_.padded_vocab(), keep ? Role::logits : Role::temporary);
    graph_.ops.push_back({.kind = Kind::linear, .in = {n, table}, .out = {logits}});
    if (!loss_wanted) return;
    const int targets = outside("targets", DType::i32, {dim_.tokens()}, Role::targets);
    const int loss = outside("loss", DType::f64, {1}, Role::loss);
    const int lse = graph_.add({.name = "logits.lse", .dtype = DType::f32, .shape = {dim_.tokens()}});
    graph_.ops.push_back({.kind = Kind::cross_entropy,
                          .in = {logits, targets},
                          .out = {loss, lse},
                          .attributes = ops::CrossEntropyAttributes{config_.vocab}});
  }

 private:
  const Config& config_;
  const Unit& unit_;
  const Dimensions& dim_;
  Use use_;
  ops::Graph graph_;
  int step_inputs_ = -1;
};

}  // namespace

ops::Graph forward(const Config& config, const Unit& unit, const Dimensions& dimensions, Use use, bool keep_logits) {
  Lister lister(config, unit, dimensions, use);
  switch (unit.kind) {
    case UnitKind::embedding: lister.embedding(); break;
    case UnitKind::layer: lister.layer(); break;
    case UnitKind::head: lister.head(keep_logits); break;
  }
  return lister.finish();
}

std::vector<float> rotary_table(const Config& config, int64_t sequence) {
  const int64_t dims = config.rotary_dims(), half = dims / 2;
  std::vector<float> frequencies(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    double frequency = 1 / std::pow(config.rotary_base, static_cast<double>(2 * i) / static_cast<double>(dims));
    if (config.rope_scaling) {
      // Llama 3: long wavelengths stretched by `factor`, short ones kept, a linear blend between.
      const RopeScaling& s = *config.rope_scaling;
      const double wavelength = 2 * std::numbers::pi / frequency, original = static_cast<double>(s.original_sequence);
      const double low = original / s.low_freq_factor, high = original / s.high_freq_factor;
      if (wavelength > low) {
        frequency /= s.factor;
      } else if (wavelength > high) {
        const double smooth = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        frequency = (1 - smooth) * frequency / s.factor + smooth * frequency;
      }
    }
    frequencies[static_cast<size_t>(i)] = static_cast<float>(frequency);
  }
  std::vector<float> table(static_cast<size_t>(sequence * dims));
  for (int64_t position = 0; position < sequence; ++position)
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[static_cast<size_t>(i)];
      table[static_cast<size_t>(position * dims + i)] = static_cast<float>(std::cos(static_cast<double>(angle)));
      table[static_cast<size_t>(position * dims + half + i)] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  return table;
}

double unit_flops_per_token(const Config& config, const Unit& unit, int64_t sequence) {
  if (unit.kind == UnitKind::embedding) return 0;
  if (unit.kind == UnitKind::head) return 6 * static_cast<double>(config.vocab) * static_cast<double>(config.hidden);
  double weights = 0;
  for (const Parameter& p : unit.parameters)
    if (p.matrix()) weights += static_cast<double>(p.shape.elements());
  return 6 * weights + 12.0 * static_cast<double>(config.heads * config.head_dim) * static_cast<double>(sequence);
}

double train_flops_per_token(const Config& config, int64_t sequence) {
  double sum = 0;
  for (const Unit& unit : units(config)) sum += unit_flops_per_token(config, unit, sequence);
  return sum;
}

}  // namespace strata::model
