#include "step/build.h"

#include <fmt/format.h>

#include "core/error.h"
#include "job/batch.h"
#include "machine/levels.h"
#include "step/blocks.h"
#include "step/check.h"
#include "step/lowering.h"
#include "step/schedules/schedule.h"

namespace strata::step {

using ops::Role;

Program build(const Request& request, Goal goal, const device::Planner& planner) {
  Lowering lowering(request, goal, planner);
  add_states(lowering);
  add_unit_blocks(lowering);
  Sharding sharding(lowering);
  add_slots(lowering, sharding);
  if (goal == Goal::train) add_update(lowering, sharding);
  if (goal != Goal::generate) sharding.reduce_losses();
  prefetch(lowering.program, request.job.schedule.prefetch, request.job.schedule.prefetch_bytes);
  place_memory(lowering.program, request.front_bytes);
  link(lowering.program);
  check(lowering.program);
  return std::move(lowering.program);
}

Lowering::Lowering(const Request& request_, Goal goal_, const device::Planner& planner_)
    : request(request_), goal(goal_), planner(planner_), units(model::units(request_.job.model)) {
  program.goal = goal;
  program.compute = compute();
  program.inspect = request.inspect;
  program.prefetch = request.job.schedule.prefetch;
  program.overlap = request.job.schedule.overlap;
  program.micro_batches =
      goal == Goal::generate ? 1 : static_cast<int32_t>(job::resolve_batch(request.job, request.ranks).accumulation);
  program.batch = goal == Goal::generate ? 1 : request.job.batch.micro;
  program.sequence = goal == Goal::generate ? request.generate_rows : request.job.batch.sequence;

  const job::Job& job = request.job;
  if (job.mesh.tensor > 1)
    throw input_error("mesh.tensor = {}: the step program of tensor ranks is not built yet; set it to 1",
                      job.mesh.tensor);
  const auto levels = job::levels_of(job, request.ranks);
  for (const machine::Level& level : levels) program.level_names.push_back(level.name);
  const layout::Mesh mesh = job::mesh_of(job, levels);
  chunks = job::chunk_units(job);
  stages = static_cast<int32_t>(job.mesh.pipeline);
  stage = static_cast<int32_t>(mesh.index(request.rank, layout::Axis::pipeline));
  placement.widths = mesh.widths(layout::Axis::data);
  placement.position = mesh.coordinates(request.rank, layout::Axis::data);
  program.widths = placement.widths;
  program.mesh = mesh;
  program.rank = request.rank;
  program.stream_names = {"compute"};
  for (const std::string& name : program.level_names) program.stream_names.push_back(name);
  for (const char* name :
       {"stages", "forward out", "forward in", "backward out", "backward in", "forward out, up the V",
        "forward in, up the V", "backward out, down the V", "backward in, down the V"})
    program.stream_names.emplace_back(name);
  placement.reach = job::resolve_placement(job, program.level_names);
  for (const model::Unit& unit : units)
    program.units.push_back(
        {unit.name, elements(unit), weights_reach(unit), placement.reach.optimizer, stage_of(unit), holds(unit)});
}

int32_t Lowering::stage_of(const model::Unit& unit) const {
  int32_t chunk = 0;
  while (chunks[static_cast<size_t>(chunk)].last <= unit.index) ++chunk;
  return step::stage_of(request.job.schedule.pipeline, chunk, stages);
}

bool Lowering::tied_apart() const {
  return request.job.model.tied && stage_of(units.front()) != stage_of(units.back());
}

bool Lowering::holds(const model::Unit& unit) const {
  return computes(unit) || (unit.index == 0 && tied_apart() && computes(units.back()));
}

int64_t Lowering::elements(const model::Unit& unit) const {
  // The optimizer reaches furthest: its shards are the finest cut.
  return round_up(unit.elements, ops::grain * placement.shards(placement.reach.optimizer));
}

int Lowering::weights_reach(const model::Unit& unit) const {
  return unit.elements <= request.job.placement.resident ? 0 : placement.reach.weights;
}

layout::Cut Lowering::cut(const model::Unit& unit, int reach) const {
  return layout::cut(elements(unit), placement.widths, placement.position, reach);
}

device::Wire Lowering::wire(job::Purpose purpose, int level) const {
  const job::Job& job = request.job;
  const bool weights = purpose == job::Purpose::weights || purpose == job::Purpose::update;
  device::Wire wire{.dtype = weights ? compute() : job.precision.gradients};
  const bool stochastic = job.placement.rounding == job::Rounding::stochastic;
  switch (placement.reach.wires[static_cast<size_t>(purpose)][static_cast<size_t>(level)]) {
    case job::Wire::full: break;
    case job::Wire::fp32: wire.dtype = DType::f32; break;
    case job::Wire::bf16: wire.dtype = DType::bf16; break;
    case job::Wire::int8:
      wire = {device::WireKind::int8, DType::f32, static_cast<int32_t>(job.placement.int8_block), stochastic};
      break;
    case job::Wire::int4:
      wire = {device::WireKind::int4, DType::f32, static_cast<int32_t>(job.placement.int4_block), stochastic};
      break;
  }
  return wire;
}

bool Lowering::separate_master(const model::Unit& unit) const {
  if (compute() != DType::f32) return true;
  for (int level = weights_reach(unit); level < placement.reach.optimizer; ++level)
    if (placement.widths[static_cast<size_t>(level)] > 1 && !wire(job::Purpose::update, level).lossless(DType::f32))
      return true;
  return false;
}

int Lowering::gradient_reach(const model::Unit& unit) const {
  const bool tied_table = request.job.model.tied && unit.kind == model::UnitKind::embedding;
  return tied_table ? 0 : placement.reach.gradients;
}

BlockId Lowering::add_block(Block block) {
  program.blocks.push_back(std::move(block));
  return static_cast<BlockId>(program.blocks.size()) - 1;
}

namespace {

BufferKind kind_of(Role role) {
  switch (role) {
    case Role::parameter:
    case Role::tied_parameter: return BufferKind::weights;
    case Role::gradient:
    case Role::tied_gradient: return BufferKind::gradients;
    case Role::master: return BufferKind::master;
    case Role::feedback: return BufferKind::feedback;
    case Role::moment1:
    case Role::moment2: return BufferKind::moments;
    case Role::input:
    case Role::output: return BufferKind::activation;
    case Role::input_gradient:
    case Role::output_gradient: return BufferKind::activation_gradient;
    case Role::saved: return BufferKind::saved;
    case Role::held: return BufferKind::held;
    case Role::constant: return BufferKind::constant;
    case Role::tokens:
    case Role::targets:
    case Role::sequence_ids:
    case Role::document_starts:
    case Role::step_inputs: return BufferKind::input;
    case Role::step_results:
    case Role::loss:
    case Role::logits: return BufferKind::result;
    case Role::cache: return BufferKind::cache;
    case Role::norm_sum:
    case Role::temporary: return BufferKind::scratch;
  }
  return BufferKind::scratch;
}

}  // namespace

BufferId Lowering::add_buffer(BufferKind kind, Role role, int unit, int micro_batch, int64_t bytes) {
  program.buffers.push_back({.kind = kind, .role = role, .bytes = bytes, .unit = unit, .micro_batch = micro_batch});
  return static_cast<BufferId>(program.buffers.size()) - 1;
}

BufferId Lowering::add_view(BufferId owner, layout::Cut outer, layout::Cut inner, DType dtype) {
  if (outer == inner) return owner;
  Buffer view = program.buffers[static_cast<size_t>(owner)];
  STRATA_CHECK(view.within < 0 && view.bytes == outer.elements * size_of(dtype));
  view.within = owner;
  view.begin = (inner.begin - outer.begin) * size_of(dtype);
  view.first = inner.begin;
  view.bytes = inner.elements * size_of(dtype);
  view.micro_batch = -2;  // found by no role
  program.buffers.push_back(view);
  return static_cast<BufferId>(program.buffers.size()) - 1;
}

BufferId Lowering::buffer(Role role, int unit, int micro_batch, int64_t bytes) {
  if (role == Role::temporary) return add_buffer(kind_of(role), role, unit, micro_batch, bytes);  // of one task alone

  // Which of the unit's neighbours, if any, it is shared with; and what it is of one step only.
  switch (role) {
    case Role::input: role = Role::output, --unit; break;
    case Role::input_gradient: role = Role::output_gradient, --unit; break;
    case Role::tied_parameter: role = Role::parameter, unit = 0, micro_batch = -1; break;
    case Role::tied_gradient: unit = 0, micro_batch = -1; break;
    case Role::parameter:
    case Role::gradient:
    case Role::master:
    case Role::feedback:
    case Role::moment1:
    case Role::moment2:
    case Role::cache: micro_batch = -1; break;
    case Role::constant:
    case Role::step_inputs:
    case Role::step_results:
    case Role::norm_sum: unit = micro_batch = -1; break;
    case Role::tokens:
    case Role::targets:
    case Role::sequence_ids:
    case Role::document_starts:
    case Role::loss:
    case Role::logits: unit = -1; break;
    default: break;
  }
  if (const auto bound = bound_.find({role, unit}); bound != bound_.end()) return bound->second;
  const auto [at, fresh] = buffers_.try_emplace({role, unit, micro_batch}, -1);
  if (fresh && role == Role::loss && micro_batch >= 0) {
    // One vector of losses, so that one message sums them over the ranks.
    const BufferId all = buffer(Role::loss, -1, -1, program.micro_batches * bytes);
    at->second = add_buffer(kind_of(role), role, unit, micro_batch, bytes);
    Buffer& view = program.buffers[static_cast<size_t>(at->second)];
    view.within = all;
    view.begin = micro_batch * bytes;
  } else if (fresh) {
    at->second = add_buffer(kind_of(role), role, unit, micro_batch, bytes);
  }
  const Buffer& found = program.buffers[static_cast<size_t>(at->second)];
  STRATA_CHECK(bytes <= found.bytes, "{} of unit {} needs {} bytes, its buffer has {}", ops::name_of(role), unit, bytes,
               found.bytes);
  return at->second;
}

void Lowering::add_transfer(Transfer transfer, int micro_batch, BufferId in, BufferId out, BufferId feedback) {
  STRATA_CHECK(transfer.hop.members() > 1);
  const int64_t bytes = comm::staging_bytes(transfer.hop);
  transfer.staged = bytes > 0;
  transfer.feedback = feedback >= 0;
  // Stages have different numbers of transfers; those that they share are numbered apart.
  transfer.sequence = transfer.axis == layout::Axis::pipeline ? stage_collectives_++ : collectives_++;
  const BufferId staging =
      transfer.staged ? add_buffer(BufferKind::staging, Role::temporary, transfer.unit, micro_batch, bytes) : -1;
  Task task;
  task.micro_batch = micro_batch;
  // A stream a level: the outermost one that the transfer crosses.
  task.stream = transfer.axis == layout::Axis::pipeline ? placement.levels() + 1 : transfer.last_level;
  task.work = std::move(transfer);
  task.buffers.begin = static_cast<int32_t>(program.buffer_lists.size());
  for (BufferId id : {in, out, staging, feedback})
    if (id >= 0) program.buffer_lists.push_back(id);
  task.buffers.end = static_cast<int32_t>(program.buffer_lists.size());
  program.tasks.push_back(task);
}

void Lowering::add_message(Purpose purpose, int unit, int micro_batch, int32_t from, int32_t to, BufferId values,
                           DType dtype, int32_t number, int way) {
  if (stage != from && stage != to) return;
  const auto rank_of = [&](int32_t at) { return program.mesh.with_index(program.rank, layout::Axis::pipeline, at); };
  const int64_t elements = program.buffers[static_cast<size_t>(values)].bytes / size_of(dtype);
  Transfer transfer{.hop = {.collective = comm::Collective::send,
                            .widths = {2},
                            .elements = elements,
                            .dtype = dtype,
                            .wire = {.dtype = dtype}},
                    .purpose = purpose,
                    .first_level = 0,
                    .last_level = 0,
                    .unit = unit,
                    .sequence = number,
                    .axis = layout::Axis::pipeline,
                    .ends = {rank_of(from), rank_of(to)}};
  transfer.first_level = program.mesh.crossed(transfer.ends[0], transfer.ends[1]);
  transfer.last_level = transfer.first_level + 1;
  Task task;
  task.micro_batch = micro_batch;
  task.stream = placement.levels() + 2 + 2 * way + (stage == from ? 0 : 1);
  task.work = std::move(transfer);
  task.buffers.begin = static_cast<int32_t>(program.buffer_lists.size());
  program.buffer_lists.push_back(values);
  task.buffers.end = static_cast<int32_t>(program.buffer_lists.size());
  program.tasks.push_back(task);
}

void Lowering::add_compute(BlockId block_id, int unit, int micro_batch) {
  const Block& block = program.blocks[static_cast<size_t>(block_id)];
  Task task;
  task.work = Compute{block_id, unit};
  task.micro_batch = micro_batch;
  task.buffers.begin = static_cast<int32_t>(program.buffer_lists.size());
  for (const Formal& formal : block.formals)
    program.buffer_lists.push_back(buffer(formal.role, unit, micro_batch, formal.bytes));
  task.buffers.end = static_cast<int32_t>(program.buffer_lists.size());
  program.tasks.push_back(task);
}

void add_states(Lowering& lowering) {
  const Placement& place = lowering.placement;
  const model::Config& config = lowering.request.job.model;
  const auto add = [&](Role role, const model::Unit& unit, int reach, int64_t bytes) {
    const BufferId id = lowering.buffer(role, unit.index, -1, bytes);
    lowering.program.buffers[static_cast<size_t>(id)].first = lowering.cut(unit, reach).begin;
  };
  for (const model::Unit& unit : lowering.units) {
    if (!lowering.holds(unit)) continue;
    const int reach = lowering.weights_reach(unit);
    add(Role::parameter, unit, reach, lowering.cut(unit, reach).elements * size_of(lowering.compute()));
  }
  if (!config.learned_positions() && config.rotary_dims() > 0) {
    // All goals see one table, as long as the model's longest sequence.
    lowering.buffer(Role::constant, -1, -1, config.sequence * config.rotary_dims() * size_of(DType::f32));
  }
  if (lowering.goal == Goal::generate)
    for (const model::Unit& unit : lowering.units)
      if (unit.kind == model::UnitKind::layer)
        lowering.buffer(Role::cache, unit.index, -1,
                        config.sequence * 2 * config.kv_heads * config.head_dim * size_of(lowering.compute()));
  if (lowering.goal != Goal::train) return;
  for (const model::Unit& unit : lowering.units) {
    if (!lowering.holds(unit)) continue;
    const int64_t shard = lowering.cut(unit, place.reach.optimizer).elements;
    if (lowering.separate_master(unit)) add(Role::master, unit, place.reach.optimizer, shard * size_of(DType::f32));
    const int64_t block = lowering.request.job.optimizer.moment_block();
    const int64_t moment = block == 0 ? shard * size_of(DType::f32) : shard + shard / block * size_of(DType::f32);
    add(Role::moment1, unit, place.reach.optimizer, moment);
    add(Role::moment2, unit, place.reach.optimizer, moment);
  }
}

void add_unit_blocks(Lowering& lowering) {
  const model::Dimensions dimensions{lowering.program.batch, lowering.program.sequence, lowering.compute(),
                                     !lowering.request.job.data.attention_across_documents};
  const bool halves = splits_backward(lowering.request.job.schedule.pipeline);
  for (const model::Unit& unit : lowering.units) {
    UnitBlocks& blocks = lowering.blocks_of(unit);
    if (blocks.forward >= 0 || !lowering.computes(unit)) continue;  // an equal layer came before
    UnitLowering unit_lowering = lower_unit(lowering.request, unit, dimensions, lowering.goal);
    std::vector<bool> in_weight_half;
    if (halves && lowering.goal == Goal::train) in_weight_half = split_backward(unit_lowering);
    const int64_t elements = lowering.elements(unit);
    const FormalBytes bytes{elements * size_of(lowering.compute()), elements * size_of(DType::f32),
                            unit_lowering.saved_bytes, unit_lowering.held_bytes};
    const std::string name(model::name_of(unit.kind));
    blocks.forward = lowering.add_block(make_block(name + "/forward", Phase::forward, unit_lowering.forward,
                                                   unit_lowering.tensors, bytes, lowering.planner));
    if (lowering.goal != Goal::train) continue;

    // The first micro-batch writes the accumulators, later ones add to them: the same bits as one sum from zero, without
    // a pass that clears them. Gaps between parameters are cleared once.
    std::vector<ops::Op> first = unit_lowering.backward;
    int64_t end = 0;
    const auto clear = [&](int64_t begin, int64_t gap_end) {
      if (begin == gap_end) return;
      unit_lowering.tensors.push_back({.name = "gap",
                                       .dtype = DType::f32,
                                       .shape = {gap_end - begin},
                                       .role = Role::gradient,
                                       .offset = begin * size_of(DType::f32)});
      first.push_back({.kind = ops::Kind::fill_zero, .out = {static_cast<int>(unit_lowering.tensors.size()) - 1}});
    };
    for (const model::Parameter& parameter : unit.parameters) {
      clear(end, parameter.offset);
      end = parameter.offset + parameter.shape.elements();
    }
    clear(end, elements);
    // Where each micro-batch's own gradient is reduced by itself, only a tied table's is added to in place.
    const bool whole = lowering.placement.shards(lowering.gradient_reach(unit)) == 1;
    std::vector<ops::Op> next = whole ? unit_lowering.backward : first;
    bool adds = false;
    for (ops::Op& op : next)
      for (int out : op.out) {
        const Role role = unit_lowering.tensors[static_cast<size_t>(out)].role;
        if (role == Role::tied_gradient || (role == Role::gradient && whole)) op.accumulate = adds = true;
      }
    adds = adds && lowering.program.micro_batches > 1;
    const auto add = [&](const std::string& verb, Phase phase, const std::vector<ops::Op>& list, bool weight_half) {
      std::vector<ops::Op> mine, others;
      for (size_t i = 0; i < list.size(); ++i) {
        // Gaps, behind the backward's own operations, belong to the weights.
        const bool to_weights = i >= in_weight_half.size() || in_weight_half[i];
        (phase == Phase::backward || to_weights == weight_half ? mine : others).push_back(list[i]);
      }
      if (mine.empty()) return BlockId{-1};
      // What the other half reads later stays as it is.
      return lowering.add_block(make_block(name + verb, phase, std::move(mine), unit_lowering.tensors, bytes,
                                           lowering.planner, weight_half ? std::vector<ops::Op>{} : others));
    };
    const auto both = [&](const std::string& verb, Phase phase, bool weight_half) {
      const BlockId one = add(verb + " first", phase, first, weight_half);
      return UnitBlocks::Backward{one, adds ? add(verb, phase, next, weight_half) : one};
    };
    if (halves) {
      blocks.input_half = both("/backward_input", Phase::backward_input, false);
      blocks.weight_half = both("/backward_weight", Phase::backward_weight, true);
    } else {
      blocks.backward = both("/backward", Phase::backward, false);
    }
  }
}

}  // namespace strata::step
