#include "model/unit.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace strata::model {

std::string_view name_of(UnitKind kind) {
  switch (kind) {
    case UnitKind::embedding: return "embedding";
    case UnitKind::layer: return "layer";
    case UnitKind::head: return "head";
  }
  return "?";
}

const Parameter& Unit::parameter(std::string_view parameter_name) const {
  for (const Parameter& p : parameters)
    if (p.name == parameter_name) return p;
  STRATA_CHECK(false, "unit {} has no parameter {}", name, parameter_name);
  return parameters.front();
}

namespace {

/// Elements between which parameters start, so that every row of a vector kernel begins on a cache line.
constexpr int64_t parameter_alignment = 16;

class UnitBuilder {
 public:
  UnitBuilder(std::string name, UnitKind kind, int index) { unit_ = {std::move(name), kind, index, {}, 0}; }

  void add(std::string name, ops::Shape shape, Init init, int64_t true_rows = -1) {
    unit_.elements = round_up(unit_.elements, parameter_alignment);
    unit_.parameters.push_back({std::move(name), shape, unit_.elements, true_rows < 0 ? shape[0] : true_rows, init});
    unit_.elements += shape.elements();
  }

  void norm(const Config& config, const std::string& name) {
    add(name + ".weight", {config.hidden}, {Init::Kind::one});
    if (!config.rms_norm()) add(name + ".bias", {config.hidden}, {});
  }

  void linear(const std::string& name, int64_t out, int64_t in, double std, bool bias) {
    add(name + ".weight", {out, in}, {Init::Kind::normal, std});
    if (bias) add(name + ".bias", {out}, {});
  }

  Unit finish() {
    unit_.elements = round_up(unit_.elements, ops::grain);
    return std::move(unit_);
  }

 private:
  Unit unit_;
};

}  // namespace

std::vector<Unit> units(const Config& config) {
  // small_init and wang_init: GPT-NeoX's formulas, facts of docs/models.md; GPT-2: residual projections shrink with depth.
  const bool small_wang = config.initialisation == Initialisation::small_wang;
  const double h = static_cast<double>(config.hidden), layers = static_cast<double>(config.layers);
  const double std = small_wang ? std::sqrt(2.0 / (5.0 * h)) : config.init_std;
  const double residual_std = small_wang ? 2.0 / layers / std::sqrt(h) : config.init_std / std::sqrt(2.0 * layers);
  const int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const bool swiglu = config.activation == Activation::swiglu;

  std::vector<Unit> result;
  UnitBuilder embedding("embedding", UnitKind::embedding, 0);
  embedding.add("table", {config.padded_vocab(), config.hidden}, {Init::Kind::normal, std}, config.vocab);
  if (config.learned_positions())
    embedding.add("positions", {config.sequence, config.hidden},
                  {Init::Kind::normal, small_wang ? std : config.init_std / 2});
  result.push_back(embedding.finish());

  for (int64_t i = 0; i < config.layers; ++i) {
    UnitBuilder layer(fmt::format("layers.{}", i), UnitKind::layer, static_cast<int>(result.size()));
    layer.norm(config, "norm1");
    layer.linear("attention.qkv", q + 2 * kv, config.hidden, std, config.attention_bias);
    layer.linear("attention.out", config.hidden, q, residual_std, config.attention_bias);
    layer.norm(config, "norm2");
    layer.linear("mlp.up", swiglu ? 2 * config.ffn : config.ffn, config.hidden, std, config.mlp_bias);
    layer.linear("mlp.down", config.hidden, config.ffn, residual_std, config.mlp_bias);
    result.push_back(layer.finish());
  }

  UnitBuilder head("head", UnitKind::head, static_cast<int>(result.size()));
  head.norm(config, "norm");
  if (!config.tied) head.add("table", {config.padded_vocab(), config.hidden}, {Init::Kind::normal, std}, config.vocab);
  result.push_back(head.finish());
  return result;
}

}  // namespace strata::model
