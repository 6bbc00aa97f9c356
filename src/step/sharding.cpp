// A placement becomes transfers: what is gathered before a task, what is reduced after it. Nothing here knows a scheme by
// name; a scheme is how far weights, secondary copy, gradients and optimizer states reach over the levels.

#include <algorithm>

#include "core/error.h"
#include "step/lowering.h"

namespace strata::step {

using comm::Collective;
using layout::Cut;
using ops::Role;

Sharding::Sharding(Lowering& lowering)
    : lowering_(lowering),
      current_(lowering.units.size(), false),
      secondary_(lowering.units.size(), -1),
      accumulators_(lowering.units.size(), -1),
      feedback_(lowering.units.size(), -1),
      kept_(lowering.units.size(), {-1, -1}) {
  for (const model::Unit& unit : lowering.units)
    weights_.push_back(lowering.holds(unit) ? lowering.buffer(Role::parameter, unit.index, -1, 0) : -1);
}

// ---- hops

bool Sharding::flat(job::Purpose rule, int last) const {
  if (lowering_.request.job.placement.collectives == job::Collectives::levels) return false;
  const bool gathers = rule == job::Purpose::weights || rule == job::Purpose::update;
  return gathers || lowering_.wire(rule, last - 1).kind == device::WireKind::raw;
}

std::vector<job::Hop> Sharding::hops(job::Purpose rule, int first, int last) const {
  const Placement& p = lowering_.placement;
  if (p.group(first, last) == 1) return {};
  if (flat(rule, last)) return {{first, last}};
  std::vector<job::Hop> result;
  for (const job::Hop& hop : p.reach.hops[static_cast<size_t>(rule)]) {
    const job::Hop inside = {std::max(hop.first, first), std::min(hop.last, last)};
    if (inside.first < inside.last && p.group(inside.first, inside.last) > 1) result.push_back(inside);
  }
  return result;
}

Transfer Sharding::hop(const Work& work, Collective collective, const job::Hop& levels, const Cut& whole) const {
  const Placement& p = lowering_.placement;
  Transfer transfer{.hop = {.collective = collective,
                            .algorithm = flat(work.rule, levels.last) ? comm::Algorithm::ring : comm::Algorithm::direct,
                            .widths = {p.widths.begin() + levels.first, p.widths.begin() + levels.last},
                            .elements = whole.elements,
                            .dtype = work.dtype,
                            .wire = lowering_.wire(work.rule, levels.last - 1)},
                    .purpose = work.purpose,
                    .first_level = levels.first,
                    .last_level = levels.last,
                    .first = whole.begin,
                    .unit = work.unit.index};
  return transfer;
}

namespace {

constexpr BufferId in_place = -1;

/// A rank's number among those that differ in the coordinates of some levels.
int64_t member_of(const Placement& p, const job::Hop& levels) {
  int64_t member = 0;
  for (int level = levels.first; level < levels.last; ++level)
    member = member * p.widths[static_cast<size_t>(level)] + p.position[static_cast<size_t>(level)];
  return member;
}

Cut part_of(const Placement& p, const job::Hop& levels, const Cut& whole) {
  return layout::part(whole, p.group(levels.first, levels.last), member_of(p, levels));
}

}  // namespace

void Sharding::gather_hops(const Work& work, int first, int last, BufferId from, Held to, const Cut& whole) {
  const std::vector<job::Hop> inside_out = hops(work.rule, first, last);
  // Each hop's whole is the part of the hop inside it.
  std::vector<Cut> wholes = {whole};
  for (const job::Hop& levels : inside_out) wholes.push_back(part_of(lowering_.placement, levels, wholes.back()));
  for (size_t i = inside_out.size(); i-- > 0;) {
    const bool outermost = i + 1 == inside_out.size();
    const BufferId part =
        outermost && from >= 0 ? from : lowering_.add_view(to.buffer, to.cut, wholes[i + 1], work.dtype);
    lowering_.add_transfer(hop(work, Collective::all_gather, inside_out[i], wholes[i]), work.micro_batch, part,
                           lowering_.add_view(to.buffer, to.cut, wholes[i], work.dtype));
  }
}

void Sharding::reduce_hops(const Work& work, int first, int last, Held from, Cut whole, BufferId to, bool accumulate) {
  const std::vector<job::Hop> inside_out = hops(work.rule, first, last);
  for (size_t i = 0; i < inside_out.size(); ++i) {
    const Cut part = part_of(lowering_.placement, inside_out[i], whole);
    const bool outermost = i + 1 == inside_out.size();
    Transfer transfer = hop(work, Collective::reduce_scatter, inside_out[i], whole);
    transfer.accumulate = outermost && accumulate;
    // Errors of the slowest hop are worth keeping.
    BufferId feedback = -1;
    if (lowering_.request.job.placement.error_feedback && outermost && work.unit.index >= 0 &&
        transfer.hop.wire.kind != device::WireKind::raw &&
        inside_out[i].last == static_cast<int>(lowering_.placement.widths.size())) {
      feedback = lowering_.buffer(Role::feedback, work.unit.index, -1, whole.elements * size_of(DType::f32));
      lowering_.program.buffers[static_cast<size_t>(feedback)].first = whole.begin;
    }
    lowering_.add_transfer(
        std::move(transfer), work.micro_batch, lowering_.add_view(from.buffer, from.cut, whole, work.dtype),
        outermost && to >= 0 ? to : lowering_.add_view(from.buffer, from.cut, part, work.dtype), feedback);
    whole = part;
  }
}

void Sharding::sum_few(Purpose purpose, int last, BufferId values, DType dtype, int64_t count) {
  const layout::Mesh& mesh = lowering_.program.mesh;
  const auto sum = [&](layout::Axis axis, int levels) {
    for (int level = 0; level < levels; ++level)
      if (const int64_t width = mesh.widths(axis)[static_cast<size_t>(level)]; width > 1)
        lowering_.add_transfer({.hop = {.collective = Collective::all_reduce,
                                        .widths = {width},
                                        .elements = count,
                                        .dtype = dtype,
                                        .wire = {.dtype = dtype}},
                                .purpose = purpose,
                                .first_level = level,
                                .last_level = level + 1,
                                .axis = axis},
                               -1, values, values);
  };
  sum(layout::Axis::data, last);
  sum(layout::Axis::pipeline, mesh.levels());
}

// ---- weights

void Sharding::gather_update(const model::Unit& unit) {
  if (current_[static_cast<size_t>(unit.index)]) return;
  current_[static_cast<size_t>(unit.index)] = true;
  const int first = lowering_.weights_reach(unit), last = lowering_.placement.reach.optimizer;
  const Cut whole = lowering_.cut(unit, first);
  gather_hops({Purpose::update, job::Purpose::update, unit, lowering_.compute()}, first, last, in_place,
              {weights_[static_cast<size_t>(unit.index)], whole}, whole);
}

void Sharding::gather(const model::Unit& unit, Phase phase, int micro_batch) {
  const Placement& p = lowering_.placement;
  const int reach = lowering_.weights_reach(unit);
  if (p.shards(reach) == 1) return;
  auto& [kept_of, kept] = kept_[static_cast<size_t>(unit.index)];
  // In a pipeline other micro-batches come between a forward and its backward: what is kept at all is kept for the step.
  const bool for_the_step = lowering_.stages > 1 && kept >= 0;
  if (for_the_step || (phase != Phase::forward && kept_of == micro_batch)) {
    lowering_.bind(Role::parameter, unit.index, kept);
    return;
  }
  const Cut whole{0, lowering_.elements(unit)};
  const DType compute = lowering_.compute();
  const Work work{phase == Phase::forward ? Purpose::weights_forward : Purpose::weights_backward, job::Purpose::weights,
                  unit, compute, micro_batch};
  BufferId source = weights_[static_cast<size_t>(unit.index)];
  int source_reach = reach;
  const int narrower = p.reach.secondary;
  if (narrower > 0 && narrower < reach && p.group(narrower, reach) > 1 && lowering_.goal == Goal::train) {
    // The outer hops land in the secondary copy, once a step; every gather goes on from there.
    BufferId& secondary = secondary_[static_cast<size_t>(unit.index)];
    const Cut cut = lowering_.cut(unit, narrower);
    if (secondary < 0) {
      secondary = lowering_.add_buffer(BufferKind::secondary, Role::parameter, unit.index, micro_batch,
                                       cut.elements * size_of(compute));
      gather_hops(work, narrower, reach, source, {secondary, cut}, cut);
    }
    source = secondary;
    source_reach = narrower;
  }
  BufferId gathered = source;
  if (p.shards(source_reach) > 1) {
    gathered = lowering_.add_buffer(BufferKind::gathered_weights, Role::parameter, unit.index, micro_batch,
                                    whole.elements * size_of(compute));
    gather_hops(work, 0, source_reach, source, {gathered, whole}, whole);
  }
  if (phase == Phase::forward && !lowering_.request.job.placement.reshard_after_forward)
    kept_of = micro_batch, kept = gathered;
  lowering_.bind(Role::parameter, unit.index, gathered);
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
  if (reads(Role::gradient) && lowering_.placement.shards(lowering_.gradient_reach(unit)) > 1)
    lowering_.bind(Role::gradient, unit.index, parts(unit, micro_batch));
}

BufferId Sharding::parts(const model::Unit& unit, int micro_batch) {
  const auto [at, fresh] = parts_.try_emplace({unit.index, micro_batch}, -1);
  if (fresh)
    at->second = lowering_.add_buffer(BufferKind::gradient_parts, Role::gradient, unit.index, micro_batch,
                                      lowering_.elements(unit) * size_of(DType::f32));
  return at->second;
}

// ---- gradients

BufferId Sharding::accumulators(const model::Unit& unit) {
  BufferId& id = accumulators_[static_cast<size_t>(unit.index)];
  if (id < 0) {
    const Cut cut = lowering_.cut(unit, lowering_.gradient_reach(unit));
    const int64_t bytes = cut.elements * size_of(DType::f32);
    // Whole accumulators are what the backward writes itself; a shard of them is known to transfers alone.
    id = lowering_.placement.shards(lowering_.gradient_reach(unit)) == 1
             ? lowering_.buffer(Role::gradient, unit.index, -1, bytes)
             : lowering_.add_buffer(BufferKind::gradients, Role::gradient, unit.index, -1, bytes);
    lowering_.program.buffers[static_cast<size_t>(id)].first = cut.begin;
  }
  return id;
}

void Sharding::after_backward(const model::Unit& unit, int micro_batch) {
  const int reach = lowering_.gradient_reach(unit);
  if (lowering_.placement.shards(reach) > 1) {
    const Cut whole{0, lowering_.elements(unit)};
    reduce_hops({Purpose::gradients, job::Purpose::gradients, unit, DType::f32, micro_batch}, 0, reach,
                {parts(unit, micro_batch), whole}, whole, accumulators(unit), micro_batch > 0);
  }
  const bool tied_table = lowering_.request.job.model.tied && unit.kind == model::UnitKind::embedding;
  if (micro_batch + 1 == lowering_.program.micro_batches && !tied_table) reduce_outwards(unit);
}

void Sharding::reduce_outwards(const model::Unit& unit) {
  const Placement& p = lowering_.placement;
  const int from = lowering_.gradient_reach(unit), to = p.reach.optimizer;
  const Held all{accumulators(unit), lowering_.cut(unit, from)};
  const Cut inner = lowering_.cut(unit, to);
  const BufferId own = lowering_.add_view(all.buffer, all.cut, inner, DType::f32);
  const Work work{Purpose::reduction, job::Purpose::reduction, unit, DType::f32};
  reduce_hops(work, from, to, all, all.cut, in_place, false);
  // Beyond the optimizer's reach ranks update the same shard: each needs the whole sum of it.
  reduce_hops(work, to, p.levels(), all, inner, in_place, false);
  gather_hops(work, to, p.levels(), in_place, all, inner);
  lowering_.bind(Role::gradient, unit.index, own);
}

// ---- update

void Sharding::bind_optimizer_shards() {
  const int reach = lowering_.placement.reach.optimizer;
  for (const model::Unit& unit : lowering_.units)
    if (lowering_.holds(unit))
      lowering_.bind(Role::parameter, unit.index,
                     lowering_.add_view(weights_[static_cast<size_t>(unit.index)],
                                        lowering_.cut(unit, lowering_.weights_reach(unit)), lowering_.cut(unit, reach),
                                        lowering_.compute()));
}

void Sharding::reduce_norm() {
  // Ranks beyond the optimizer's reach hold copies of the same shards: they count once.
  sum_few(Purpose::norm, lowering_.placement.reach.optimizer, lowering_.buffer(Role::norm_sum, -1, -1, 0), DType::i64,
          ops::norm_limbs);
}

void Sharding::reduce_losses() {
  const int64_t count = lowering_.program.micro_batches;
  if (!lowering_.computes(lowering_.units.back())) {
    // Stages without the head have nothing to add.
    const BufferId all = lowering_.buffer(Role::loss, -1, -1, count * size_of(DType::f64));
    for (int m = 0; m < count; ++m) lowering_.buffer(Role::loss, -1, m, size_of(DType::f64));
    const std::vector<ops::Tensor> tensors = {
        {.name = "losses", .dtype = DType::f64, .shape = {count}, .role = Role::loss}};
    lowering_.add_compute(
        lowering_.add_block(make_block("loss/clear", Phase::update, {{.kind = ops::Kind::fill_zero, .out = {0}}},
                                       tensors, {}, lowering_.planner)),
        -1, -1);
    STRATA_CHECK(lowering_.buffer(Role::loss, -1, -1, 0) == all);
  }
  sum_few(Purpose::loss, lowering_.placement.levels(), lowering_.buffer(Role::loss, -1, -1, 0), DType::f64, count);
}

}  // namespace strata::step
