#pragma once
// A model as units: the granules of sharding. Embedding, each transformer layer, head; the parameters of a unit are one
// flat, padded vector, each parameter at a fixed element offset in it.

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "ops/op.h"

namespace strata::model {

enum class UnitKind : uint8_t { embedding, layer, head };
std::string_view name_of(UnitKind kind);

/// How a parameter starts. Values are a pure function of (seed, parameter's global name, index), see core/random.h.
struct Init {
  enum class Kind : uint8_t { zero, one, normal } kind = Kind::zero;
  double std = 0;
};

struct Parameter {
  std::string name;       ///< inside its unit: "attention.qkv.weight"; global name: Unit::name + "." + name
  ops::Shape shape;       ///< matrices are [out, in], row-major; tables [padded vocab, hidden]; vectors [n]
  int64_t offset = 0;     ///< elements from the start of the unit's flat vector, a multiple of 16
  int64_t true_rows = 0;  ///< rows that exist; the rest (padded vocabulary) stay zero and are never saved
  Init init;
  bool matrix() const { return shape.rank > 1; }
};

struct Unit {
  std::string name;  ///< "embedding", "layers.0", ..., "head"
  UnitKind kind;
  int index = 0;  ///< in the model
  std::vector<Parameter> parameters;
  int64_t elements = 0;  ///< of the flat vector, padded to the grain; gaps and padding are zero, always
  const Parameter& parameter(std::string_view parameter_name) const;
};

/// Every unit, in order of the forward pass. A tied head has no table of its own: it reads the embedding's "table".
///
/// Parameters (h hidden, q heads, k KV heads, d head_dim, f ffn; biases only where the family has them):
///   embedding  table [V, h], (positions [S, h])
///   layers.i   norm1.weight [h], (norm1.bias), attention.qkv.weight [(q+2k)d, h] with rows q then k then v, heads in order,
///              (attention.qkv.bias), attention.out.weight [h, q d], (attention.out.bias), norm2.weight, (norm2.bias),
///              mlp.up.weight [f, h] (swiglu: [2f, h], gate rows then up rows), (mlp.up.bias), mlp.down.weight [h, f], (mlp.down.bias)
///   head       norm.weight, (norm.bias), (table [V, h] unless tied)
std::vector<Unit> units(const Config& config);

}  // namespace strata::model
