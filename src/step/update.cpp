// Everything between the last backward and the end of the step: the tied table's two gradients become one, one exact norm
// over all gradients, the clip factor and skip flag, then the optimizer, unit by unit.

#include <algorithm>

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
  int gradient(int64_t elements) { return add("g", DType::f32, {elements}, Role::gradient); }
  int inputs() { return add("step_inputs", DType::u8, {sizeof(ops::StepInputs)}, Role::step_inputs); }
  int results() { return add("step_results", DType::u8, {sizeof(ops::StepResults)}, Role::step_results); }
  int norm_sum() { return add("norm_sum", DType::i64, {ops::norm_limbs}, Role::norm_sum); }
};

ops::AdamWAttributes adamw(const model::Unit& unit, const layout::Cut& shard, const job::Optimizer& optimizer) {
  ops::AdamWAttributes attributes{.beta1 = optimizer.beta1,
                                  .beta2 = optimizer.beta2,
                                  .epsilon = static_cast<float>(optimizer.epsilon),
                                  .weight_decay = static_cast<float>(optimizer.weight_decay),
                                  .ranges = {},
                                  .block = optimizer.moment_block()};
  for (const model::Parameter& p : unit.parameters) {
    const int64_t row = p.shape.elements() / p.shape[0];
    const int64_t begin = std::max<int64_t>(p.offset - shard.begin, 0);
    const int64_t end = std::min(p.offset + p.true_rows * row - shard.begin, shard.elements);
    if (begin < end)
      attributes.ranges.push_back({begin, end, optimizer.weight_decay_on == job::DecayOn::all || p.matrix()});
  }
  return attributes;
}

BlockId small_block(Lowering& lowering, std::string name, std::vector<ops::Op> ops, const Operands& operands) {
  return lowering.add_block(
      make_block(std::move(name), Phase::update, std::move(ops), operands.tensors, {}, lowering.planner));
}

}  // namespace

void add_update(Lowering& lowering, Sharding& sharding) {
  const Placement& place = lowering.placement;
  const auto shard_of = [&](const model::Unit& unit) {
    return layout::cut(lowering.elements(unit), place.widths, place.position, place.reach.optimizer);
  };

  if (lowering.request.job.model.tied && lowering.holds(lowering.units.front())) {
    exchange_tied_gradients(lowering);
    const model::Unit& embedding = lowering.units.front();
    const model::Parameter& table = embedding.parameter("table");
    Operands o;
    const int g = o.add("d_table", DType::f32, table.shape, Role::gradient);
    o.tensors[static_cast<size_t>(g)].offset = table.offset * size_of(DType::f32);
    const int tied = o.add("d_table of the head", DType::f32, table.shape, Role::tied_gradient);
    const int sum = o.add("sum", DType::f32, table.shape, Role::gradient);
    o.tensors[static_cast<size_t>(sum)].offset = o.tensors[static_cast<size_t>(g)].offset;
    const BlockId block =
        small_block(lowering, "embedding/tie", {{.kind = Kind::add, .in = {g, tied}, .out = {sum}}}, o);
    lowering.add_compute(block, embedding.index, -1);
    sharding.reduce_outwards(embedding);
  }

  sharding.bind_optimizer_shards();
  {
    Operands o;
    lowering.add_compute(small_block(lowering, "norm/clear", {{.kind = Kind::fill_zero, .out = {o.norm_sum()}}}, o), -1,
                         -1);
  }
  for (const model::Unit& unit : lowering.units) {
    if (!lowering.computes(unit)) continue;  // a tied table's copy counts once
    UnitBlocks& blocks = lowering.blocks_of(unit);
    if (blocks.norm < 0) {
      Operands o;
      const int g = o.gradient(shard_of(unit).elements), sum = o.norm_sum();
      blocks.norm = small_block(lowering, std::string(model::name_of(unit.kind)) + "/norm",
                                {{.kind = Kind::grad_norm, .in = {g}, .out = {sum}}}, o);
    }
    lowering.add_compute(blocks.norm, unit.index, -1);
  }
  sharding.reduce_norm();
  {
    Operands o;
    const int sum = o.norm_sum(), inputs = o.inputs(), results = o.results();
    const auto attributes = ops::ClipAttributes{static_cast<float>(lowering.request.job.optimizer.clip)};
    lowering.add_compute(
        small_block(lowering, "clip",
                    {{.kind = Kind::clip, .in = {sum, inputs}, .out = {results}, .attributes = attributes}}, o),
        -1, -1);
  }
  for (const model::Unit& unit : lowering.units) {
    if (!lowering.holds(unit)) continue;
    UnitBlocks& blocks = lowering.blocks_of(unit);
    if (blocks.update < 0) {
      Operands o;
      const layout::Cut shard = shard_of(unit);
      const job::Optimizer& optimizer = lowering.request.job.optimizer;
      const DType compute = lowering.compute();
      const bool separate = lowering.separate_master(unit);
      ops::Op op{.kind = Kind::adamw, .attributes = adamw(unit, shard, optimizer)};
      op.in = {o.gradient(shard.elements), o.inputs(), o.results()};
      op.out.push_back(o.add("w", DType::f32, {shard.elements}, separate ? Role::master : Role::parameter));
      const int64_t block = optimizer.moment_block();
      const DType moment = block == 0 ? DType::f32 : DType::u8;
      op.out.push_back(o.add("m", moment, {shard.elements}, Role::moment1));
      op.out.push_back(o.add("v", moment, {shard.elements}, Role::moment2));
      if (block > 0)  // the scales lie behind the moment
        for (Role role : {Role::moment1, Role::moment2}) {
          const int scale = o.add("scale", DType::f32, {shard.elements / block}, role);
          o.tensors[static_cast<size_t>(scale)].offset = shard.elements;
          op.out.push_back(scale);
        }
      if (separate) op.out.push_back(o.add("copy", compute, {shard.elements}, Role::parameter));
      blocks.update = small_block(lowering, std::string(model::name_of(unit.kind)) + "/update", {std::move(op)}, o);
    }
    lowering.add_compute(blocks.update, unit.index, -1);
  }
}

}  // namespace strata::step
