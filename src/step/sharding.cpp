// A placement becomes transfers: what is gathered before a task, what is reduced after it. Nothing here knows a scheme by
// name; a scheme is how far weights, secondary copy, gradients and optimizer states reach over the levels.

#include "core/error.h"
#include "step/lowering.h"

namespace strata::step {

using layout::Cut;
using ops::Role;

namespace {

Cut cut_of(const Lowering& lowering, const model::Unit& unit, int reach) {
  return layout::cut(lowering.elements(unit), lowering.placement.widths, lowering.placement.position, reach);
}

}  // namespace

Sharding::Sharding(Lowering& lowering)
    : lowering_(lowering),
      current_(lowering.units.size(), false),
      secondary_(lowering.units.size(), -1),
      accumulators_(lowering.units.size(), -1) {
  for (const model::Unit& unit : lowering.units)
    weights_.push_back(lowering.buffer(Role::parameter, unit.index, -1, 0));
}

BufferId Sharding::accumulators(const model::Unit& unit) {
  BufferId& id = accumulators_[static_cast<size_t>(unit.index)];
  if (id < 0) {
    const int64_t bytes = cut_of(lowering_, unit, lowering_.gradient_reach(unit)).elements * size_of(DType::f32);
    // Whole accumulators are what the backward writes itself; a shard of them is known to transfers alone.
    id = lowering_.placement.shards(lowering_.gradient_reach(unit)) == 1
             ? lowering_.buffer(Role::gradient, unit.index, -1, bytes)
             : lowering_.add_buffer(BufferKind::gradients, Role::gradient, unit.index, -1, bytes);
  }
  return id;
}

void Sharding::gather_update(const model::Unit& unit) {
  if (current_[static_cast<size_t>(unit.index)]) return;
  current_[static_cast<size_t>(unit.index)] = true;
  const Placement& p = lowering_.placement;
  const Cut outer = cut_of(lowering_, unit, p.reach.weights), inner = cut_of(lowering_, unit, p.reach.optimizer);
  if (outer == inner) return;
  const BufferId all = weights_[static_cast<size_t>(unit.index)],
                 own = lowering_.add_view(all, outer, inner, lowering_.compute());
  lowering_.add_transfer({.collective = Collective::all_gather,
                          .purpose = Purpose::update,
                          .first_level = p.reach.weights,
                          .last_level = p.reach.optimizer,
                          .group = p.group(p.reach.weights, p.reach.optimizer),
                          .elements = outer.elements,
                          .dtype = lowering_.compute(),
                          .unit = unit.index},
                         -1, own, all);
}

void Sharding::gather(const model::Unit& unit, Phase phase, int micro_batch) {
  const Placement& p = lowering_.placement;
  if (p.shards(p.reach.weights) == 1) return;
  const int64_t elements = lowering_.elements(unit);
  const int64_t bytes = elements * size_of(lowering_.compute());
  BufferId& secondary = secondary_[static_cast<size_t>(unit.index)];
  const bool from_secondary = secondary >= 0;
  BufferId fills = -1;
  if (!from_secondary && p.reach.secondary > 0 && lowering_.goal == Goal::train)
    fills = lowering_.add_buffer(BufferKind::secondary, Role::parameter, unit.index, micro_batch,
                                 bytes / p.shards(p.reach.secondary));
  const int reach = from_secondary ? p.reach.secondary : p.reach.weights;
  const BufferId source = from_secondary ? secondary : weights_[static_cast<size_t>(unit.index)];
  if (fills >= 0) secondary = fills;
  const BufferId whole =
      lowering_.add_buffer(BufferKind::gathered_weights, Role::parameter, unit.index, micro_batch, bytes);
  lowering_.add_transfer({.collective = Collective::all_gather,
                          .purpose = phase == Phase::forward ? Purpose::weights_forward : Purpose::weights_backward,
                          .first_level = 0,
                          .last_level = reach,
                          .group = p.group(0, reach),
                          .elements = elements,
                          .dtype = lowering_.compute(),
                          .unit = unit.index},
                         micro_batch, source, whole, fills);
  lowering_.bind(Role::parameter, unit.index, whole);
}

void Sharding::before(const model::Unit& unit, BlockId block, int micro_batch) {
  const Phase phase = lowering_.program.blocks[static_cast<size_t>(block)].phase;
  const auto reads = [&](Role role) {
    for (const Formal& formal : lowering_.program.blocks[static_cast<size_t>(block)].formals)
      if (formal.role == role) return true;
    return false;
  };
  const bool own = reads(Role::parameter), tied = reads(Role::tied_parameter);
  const auto need = [&](const model::Unit& needed) {
    gather_update(needed);
    if (whole_for_ != unit.index) gather(needed, phase, micro_batch);
  };
  if (own) need(unit);
  if (tied) need(lowering_.units.front());
  // A head's backward right after its forward finds its weights still there.
  whole_for_ = own || tied ? unit.index : -1;
  if (phase == Phase::backward && lowering_.placement.shards(lowering_.gradient_reach(unit)) > 1)
    lowering_.bind(Role::gradient, unit.index,
                   lowering_.add_buffer(BufferKind::gradient_parts, Role::gradient, unit.index, micro_batch,
                                        lowering_.elements(unit) * size_of(DType::f32)));
}

void Sharding::after_backward(const model::Unit& unit, int micro_batch) {
  const Placement& p = lowering_.placement;
  const int reach = lowering_.gradient_reach(unit);
  if (p.shards(reach) > 1) {
    const BufferId parts = lowering_.buffer(Role::gradient, unit.index, -1, 0);
    lowering_.add_transfer({.collective = Collective::reduce_scatter,
                            .purpose = Purpose::gradients,
                            .first_level = 0,
                            .last_level = reach,
                            .group = p.group(0, reach),
                            .elements = lowering_.elements(unit),
                            .dtype = DType::f32,
                            .accumulate = micro_batch > 0,
                            .unit = unit.index},
                           micro_batch, parts, accumulators(unit));
  }
  const bool tied_table = lowering_.request.job.model.tied && unit.kind == model::UnitKind::embedding;
  if (micro_batch + 1 == lowering_.program.micro_batches && !tied_table) reduce_outwards(unit);
}

void Sharding::reduce_outwards(const model::Unit& unit) {
  const Placement& p = lowering_.placement;
  const int from = lowering_.gradient_reach(unit), to = p.reach.optimizer;
  const Cut outer = cut_of(lowering_, unit, from), inner = cut_of(lowering_, unit, to);
  const BufferId all = accumulators(unit), own = lowering_.add_view(all, outer, inner, DType::f32);
  lowering_.add_transfer({.collective = Collective::reduce_scatter,
                          .purpose = Purpose::reduction,
                          .first_level = from,
                          .last_level = to,
                          .group = p.group(from, to),
                          .elements = outer.elements,
                          .dtype = DType::f32,
                          .unit = unit.index},
                         -1, all, own);
  lowering_.add_transfer({.collective = Collective::all_reduce,
                          .purpose = Purpose::reduction,
                          .first_level = to,
                          .last_level = p.levels(),
                          .group = p.group(to, p.levels()),
                          .elements = inner.elements,
                          .dtype = DType::f32,
                          .unit = unit.index},
                         -1, own, own);
  lowering_.bind(Role::gradient, unit.index, own);
}

void Sharding::bind_optimizer_shards() {
  const Placement& p = lowering_.placement;
  for (const model::Unit& unit : lowering_.units)
    lowering_.bind(
        Role::parameter, unit.index,
        lowering_.add_view(weights_[static_cast<size_t>(unit.index)], cut_of(lowering_, unit, p.reach.weights),
                           cut_of(lowering_, unit, p.reach.optimizer), lowering_.compute()));
}

void Sharding::reduce_norm() {
  // Ranks beyond the optimizer's reach hold copies of the same shards: they count once.
  const Placement& p = lowering_.placement;
  const BufferId sum = lowering_.buffer(Role::norm_sum, -1, -1, 0);
  lowering_.add_transfer({.collective = Collective::all_reduce,
                          .purpose = Purpose::norm,
                          .first_level = 0,
                          .last_level = p.reach.optimizer,
                          .group = p.group(0, p.reach.optimizer),
                          .elements = ops::norm_limbs,
                          .dtype = DType::i64},
                         -1, sum, sum);
}

void Sharding::reduce_losses() {
  const Placement& p = lowering_.placement;
  const BufferId losses = lowering_.buffer(Role::loss, -1, -1, 0);
  lowering_.add_transfer({.collective = Collective::all_reduce,
                          .purpose = Purpose::loss,
                          .first_level = 0,
                          .last_level = p.levels(),
                          .group = p.group(0, p.levels()),
                          .elements = lowering_.program.micro_batches,
                          .dtype = DType::f64},
                         -1, losses, losses);
}

}  // namespace strata::step
