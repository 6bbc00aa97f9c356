#pragma once
// What the passes of build.cpp share while a program is being made.

#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "model/unit.h"
#include "step/blocks.h"
#include "step/program.h"
#include "step/request.h"

namespace strata::step {

/// Blocks of one kind of unit. -1: not lowered for this goal.
struct UnitBlocks {
  BlockId forward = -1;
  BlockId backward_first = -1;  ///< overwrites the gradient accumulators
  BlockId backward_next = -1;   ///< adds to them
  BlockId norm = -1, update = -1;
};

class Lowering {
 public:
  Lowering(const Request& request, Goal goal, const device::Planner& planner);

  const Request& request;
  const Goal goal;
  const device::Planner& planner;
  const std::vector<model::Unit> units;
  std::array<UnitBlocks, 3> blocks;  ///< by model::UnitKind
  Program program;
  DType compute() const { return request.job.precision.compute; }

  UnitBlocks& blocks_of(const model::Unit& unit) { return blocks[static_cast<size_t>(unit.kind)]; }
  BlockId add_block(Block block);
  /// Appends a task that runs `block` for a unit (-1: of none) and micro-batch (-1: of none), its formals bound by role.
  void add_compute(BlockId block, int unit, int micro_batch);
  /// The buffer that a formal of this role means for a unit and micro-batch; made at first use.
  BufferId buffer(ops::Role role, int unit, int micro_batch, int64_t bytes);

 private:
  std::map<std::tuple<ops::Role, int, int>, BufferId> buffers_;
};

/// blocks.cpp's result, as blocks of the program, for each kind of unit.
void add_unit_blocks(Lowering& lowering);
/// Persistent buffers, in the order in which all goals share them.
void add_states(Lowering& lowering);
/// Tasks for one slot of the schedule.
void add_slot(Lowering& lowering, Phase phase, int micro_batch);
/// update.cpp: tied gradients, norm, clip, optimizer.
void add_update(Lowering& lowering);
/// link.cpp: dependencies between streams from reads and writes in program order.
void link(Program& program);
/// memory.cpp: offsets for all buffers; those of the step behind `front_bytes` (Request) and what persists.
void place_memory(Program& program, int64_t front_bytes);

}  // namespace strata::step
