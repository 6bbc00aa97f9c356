#include "step/build.h"

#include <fmt/format.h>

#include "core/error.h"
#include "job/batch.h"
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
  const auto micro_batches = lowering.program.micro_batches;
  for (const ScheduleSlot& slot : goal == Goal::train ? one_f_one_b(0, 1, micro_batches) : forward_only(micro_batches))
    add_slot(lowering, slot.phase, slot.micro_batch);
  if (goal == Goal::train) add_update(lowering);
  link(lowering.program);
  place_memory(lowering.program, request.front_bytes);
  check(lowering.program);
  return std::move(lowering.program);
}

Lowering::Lowering(const Request& request_, Goal goal_, const device::Planner& planner_)
    : request(request_), goal(goal_), planner(planner_), units(model::units(request_.job.model)) {
  STRATA_CHECK(compute() == DType::f32, "only fp32 is lowered so far");
  program.goal = goal;
  program.inspect = request.inspect;
  program.micro_batches =
      goal == Goal::generate ? 1 : static_cast<int32_t>(job::resolve_batch(request.job, request.ranks).accumulation);
  program.batch = goal == Goal::generate ? 1 : request.job.batch.micro;
  program.sequence = goal == Goal::generate ? request.generate_rows : request.job.batch.sequence;
  for (const model::Unit& unit : units) program.unit_names.push_back(unit.name);
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
    case Role::moment1:
    case Role::moment2: return BufferKind::moments;
    case Role::input:
    case Role::output: return BufferKind::activation;
    case Role::input_gradient:
    case Role::output_gradient: return BufferKind::activation_gradient;
    case Role::saved: return BufferKind::saved;
    case Role::constant: return BufferKind::constant;
    case Role::tokens:
    case Role::targets:
    case Role::sequence_ids:
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

BufferId Lowering::buffer(Role role, int unit, int micro_batch, int64_t bytes) {
  const auto add = [&] {
    program.buffers.push_back({kind_of(role), role, bytes, -1, unit, micro_batch});
    return static_cast<BufferId>(program.buffers.size()) - 1;
  };
  if (role == Role::temporary) return add();  // scratch belongs to one task alone

  // Which of the unit's neighbours, if any, it is shared with; and what it is of one step only.
  switch (role) {
    case Role::input: role = Role::output, --unit; break;
    case Role::input_gradient: role = Role::output_gradient, --unit; break;
    case Role::tied_parameter: role = Role::parameter, unit = 0, micro_batch = -1; break;
    case Role::tied_gradient: unit = 0, micro_batch = -1; break;
    case Role::parameter:
    case Role::gradient:
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
    case Role::loss:
    case Role::logits: unit = -1; break;
    default: break;
  }
  const auto [at, fresh] = buffers_.try_emplace({role, unit, micro_batch}, -1);
  if (fresh) at->second = add();
  const Buffer& found = program.buffers[static_cast<size_t>(at->second)];
  STRATA_CHECK(bytes <= found.bytes, "{} of unit {} needs {} bytes, its buffer has {}", ops::name_of(role), unit, bytes,
               found.bytes);
  return at->second;
}

void Lowering::add_compute(BlockId block_id, int unit, int micro_batch) {
  const Block& block = program.blocks[static_cast<size_t>(block_id)];
  Task task;
  task.work = {block_id, unit};
  task.micro_batch = micro_batch;
  task.buffers.begin = static_cast<int32_t>(program.buffer_lists.size());
  for (const Formal& formal : block.formals)
    program.buffer_lists.push_back(buffer(formal.role, unit, micro_batch, formal.bytes));
  task.buffers.end = static_cast<int32_t>(program.buffer_lists.size());
  program.tasks.push_back(task);
}

void add_states(Lowering& lowering) {
  const model::Config& config = lowering.request.job.model;
  for (const model::Unit& unit : lowering.units)
    lowering.buffer(Role::parameter, unit.index, -1, unit.elements * size_of(lowering.compute()));
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
    lowering.buffer(Role::moment1, unit.index, -1, unit.elements * size_of(DType::f32));
    lowering.buffer(Role::moment2, unit.index, -1, unit.elements * size_of(DType::f32));
  }
}

void add_unit_blocks(Lowering& lowering) {
  const model::Dimensions dimensions{lowering.program.batch, lowering.program.sequence, lowering.compute()};
  for (const model::Unit& unit : lowering.units) {
    UnitBlocks& blocks = lowering.blocks_of(unit);
    if (blocks.forward >= 0) continue;  // an equal layer came before
    UnitLowering unit_lowering = lower_unit(lowering.request, unit, dimensions, lowering.goal);
    const FormalBytes bytes{unit.elements * size_of(lowering.compute()), unit.elements * size_of(DType::f32),
                            unit_lowering.saved_bytes};
    const std::string name(model::name_of(unit.kind));
    blocks.forward = lowering.add_block(make_block(name + "/forward", Phase::forward, unit_lowering.forward,
                                                   unit_lowering.tensors, bytes, lowering.planner));
    if (lowering.goal != Goal::train) continue;

    // The first micro-batch writes the accumulators, later ones add to them: the same bits as one sum from zero, without
    // a pass that clears them. Gaps between parameters are cleared once.
    std::vector<ops::Op> first = unit_lowering.backward, next = unit_lowering.backward;
    for (ops::Op& op : next)
      for (int out : op.out) {
        const Role role = unit_lowering.tensors[static_cast<size_t>(out)].role;
        if (role == Role::gradient || role == Role::tied_gradient) op.accumulate = true;
      }
    int64_t end = 0;
    const auto clear = [&](int64_t begin, int64_t gap_end) {
      if (begin == gap_end) return;
      unit_lowering.tensors.push_back({.name = "gap", .dtype = DType::f32, .shape = {gap_end - begin}, .role = Role::gradient,
                                       .offset = begin * size_of(DType::f32)});
      first.push_back({.kind = ops::Kind::fill_zero, .out = {static_cast<int>(unit_lowering.tensors.size()) - 1}});
    };
    for (const model::Parameter& parameter : unit.parameters) {
      clear(end, parameter.offset);
      end = parameter.offset + parameter.shape.elements();
    }
    clear(end, unit.elements);
    blocks.backward_first = lowering.add_block(make_block(name + "/backward first", Phase::backward, std::move(first),
                                                          unit_lowering.tensors, bytes, lowering.planner));
    if (lowering.program.micro_batches > 1)
      blocks.backward_next = lowering.add_block(make_block(name + "/backward", Phase::backward, std::move(next),
                                                           unit_lowering.tensors, bytes, lowering.planner));
  }
}

void add_slot(Lowering& lowering, Phase phase, int micro_batch) {
  if (phase == Phase::forward) {
    for (const model::Unit& unit : lowering.units)
      lowering.add_compute(lowering.blocks_of(unit).forward, unit.index, micro_batch);
    return;
  }
  for (auto unit = lowering.units.rbegin(); unit != lowering.units.rend(); ++unit) {
    const UnitBlocks& blocks = lowering.blocks_of(*unit);
    lowering.add_compute(micro_batch == 0 ? blocks.backward_first : blocks.backward_next, unit->index, micro_batch);
  }
}

}  // namespace strata::step
