// Everything between the last backward and the end of the step: the tied table's two gradients become one, one exact norm
// over all gradients, the clip factor and skip flag, then the optimizer, unit by unit.

#include "core/error.h"
#include "step/lowering.h"

namespace strata::step {

using ops::Kind;
using ops::Role;

namespace {

/// Builds the operand list of a small block by hand.
struct Operands {
  std::vector<ops::Tensor> tensors;
  int add(std::string name, DType dtype, ops::Shape shape, Role role) {
    tensors.push_back({.name = std::move(name), .dtype = dtype, .shape = shape, .role = role});
    return static_cast<int>(tensors.size()) - 1;
  }
  int gradient(const model::Unit& unit) { return add("g", DType::f32, {unit.elements}, Role::gradient); }
  int inputs() { return add("step_inputs", DType::u8, {sizeof(ops::StepInputs)}, Role::step_inputs); }
  int results() { return add("step_results", DType::u8, {sizeof(ops::StepResults)}, Role::step_results); }
  int norm_sum() { return add("norm_sum", DType::i64, {ops::norm_limbs}, Role::norm_sum); }
};

ops::AdamWAttributes adamw(const model::Unit& unit, const job::Optimizer& optimizer) {
  ops::AdamWAttributes attributes{.beta1 = static_cast<float>(optimizer.beta1), .beta2 = static_cast<float>(optimizer.beta2),
                                  .epsilon = static_cast<float>(optimizer.epsilon),
                                  .weight_decay = static_cast<float>(optimizer.weight_decay), .ranges = {}};
  for (const model::Parameter& p : unit.parameters) {
    const int64_t row = p.shape.elements() / p.shape[0];
    attributes.ranges.push_back({p.offset, p.offset + p.true_rows * row, optimizer.weight_decay_on == job::DecayOn::all || p.matrix()});
  }
  return attributes;
}

BlockId small_block(Lowering& lowering, std::string name, std::vector<ops::Op> ops, const Operands& operands,
                    const FormalBytes& bytes = {}) {
  return lowering.add_block(
      make_block(std::move(name), Phase::update, std::move(ops), operands.tensors, bytes, lowering.planner));
}

}  // namespace

void add_update(Lowering& lowering) {
  const auto unit_bytes = [&](const model::Unit& unit) {
    return FormalBytes{unit.elements * size_of(lowering.compute()), unit.elements * size_of(DType::f32), 0};
  };

  if (lowering.request.job.model.tied) {
    const model::Unit& embedding = lowering.units.front();
    const model::Parameter& table = embedding.parameter("table");
    Operands o;
    const int g = o.add("d_table", DType::f32, table.shape, Role::gradient);
    o.tensors[static_cast<size_t>(g)].offset = table.offset * size_of(DType::f32);
    const int tied = o.add("d_table of the head", DType::f32, table.shape, Role::tied_gradient);
    const int sum = o.add("sum", DType::f32, table.shape, Role::gradient);
    o.tensors[static_cast<size_t>(sum)].offset = o.tensors[static_cast<size_t>(g)].offset;
    const BlockId block = small_block(lowering, "embedding/tie", {{.kind = Kind::add, .in = {g, tied}, .out = {sum}}}, o,
                                      unit_bytes(embedding));
    lowering.add_compute(block, embedding.index, -1);
  }

  {
    Operands o;
    lowering.add_compute(small_block(lowering, "norm/clear", {{.kind = Kind::fill_zero, .out = {o.norm_sum()}}}, o), -1, -1);
  }
  for (const model::Unit& unit : lowering.units) {
    UnitBlocks& blocks = lowering.blocks_of(unit);
    if (blocks.norm < 0) {
      Operands o;
      const int g = o.gradient(unit), sum = o.norm_sum();
      blocks.norm = small_block(lowering, std::string(model::name_of(unit.kind)) + "/norm",
                                {{.kind = Kind::grad_norm, .in = {g}, .out = {sum}}}, o, unit_bytes(unit));
    }
    lowering.add_compute(blocks.norm, unit.index, -1);
  }
  {
    Operands o;
    const int sum = o.norm_sum(), inputs = o.inputs(), results = o.results();
    const auto attributes = ops::ClipAttributes{static_cast<float>(lowering.request.job.optimizer.clip)};
    lowering.add_compute(small_block(lowering, "clip",
                                     {{.kind = Kind::clip, .in = {sum, inputs}, .out = {results}, .attributes = attributes}}, o),
                         -1, -1);
  }
  for (const model::Unit& unit : lowering.units) {
    UnitBlocks& blocks = lowering.blocks_of(unit);
    if (blocks.update < 0) {
      Operands o;
      const int g = o.gradient(unit), inputs = o.inputs(), results = o.results();
      const int w = o.add("w", DType::f32, {unit.elements}, Role::parameter);
      const int m = o.add("m", DType::f32, {unit.elements}, Role::moment1);
      const int v = o.add("v", DType::f32, {unit.elements}, Role::moment2);
      blocks.update = small_block(lowering, std::string(model::name_of(unit.kind)) + "/update",
                                  {{.kind = Kind::adamw, .in = {g, inputs, results}, .out = {w, m, v},
                                    .attributes = adamw(unit, lowering.request.job.optimizer)}},
                                  o, unit_bytes(unit));
    }
    lowering.add_compute(blocks.update, unit.index, -1);
  }
}

}  // namespace strata::step
