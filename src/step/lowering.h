#pragma once
// What the passes of build.cpp share while a program is being made.

#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "job/placement.h"
#include "job/stages.h"
#include "layout/cuts.h"
#include "layout/mesh.h"
#include "model/unit.h"
#include "step/blocks.h"
#include "step/program.h"
#include "step/request.h"

namespace strata::step {

/// Blocks of one kind of unit. -1: not lowered for this goal.
struct UnitBlocks {
  BlockId forward = -1;
  /// `first` overwrites the gradients that it writes, `next` adds to those that accumulate where they are; the same block if none
  /// does. Of a backward in one piece, or of its halves; -1: nothing to do.
  struct Backward {
    BlockId first = -1, next = -1;
    BlockId of(int micro_batch) const { return micro_batch == 0 ? first : next; }
  };
  Backward backward, input_half, weight_half;
  BlockId norm = -1, update = -1;
};

/// Where the rank stands among its data-parallel peers, and how far each state reaches over the machine's levels.
struct Placement {
  layout::Widths widths;  ///< of the levels, innermost first
  int64_t rank = 0;
  std::vector<int64_t> position;  ///< of the rank within each
  job::Sharding reach;

  int levels() const { return static_cast<int>(widths.size()); }
  int64_t shards(int levels_reached) const { return layout::shards(widths, levels_reached); }
  /// Ranks that take part in a transfer over levels [first, last).
  int64_t group(int first, int last) const { return shards(last) / shards(first); }
};

class Lowering {
 public:
  Lowering(const Request& request, Goal goal, const device::Planner& planner);

  const Request& request;
  const Goal goal;
  const device::Planner& planner;
  const std::vector<model::Unit> units;
  Placement placement;
  int32_t stage = 0, stages = 1;       ///< of the pipeline
  std::vector<job::UnitRange> chunks;  ///< of the whole model
  std::array<UnitBlocks, 3> blocks;    ///< by model::UnitKind
  Program program;
  DType compute() const { return request.job.precision.compute; }

  /// The stage whose chunk a unit is in.
  int32_t stage_of(const model::Unit& unit) const;
  bool computes(const model::Unit& unit) const { return stage_of(unit) == stage; }
  /// Whether the rank has states of the unit: those that it computes, and the last stage a copy of a tied table's.
  bool holds(const model::Unit& unit) const;
  /// Whether the head has a copy of its own of the table that it shares with the embedding, on another stage.
  bool tied_apart() const;

  UnitBlocks& blocks_of(const model::Unit& unit) { return blocks[static_cast<size_t>(unit.kind)]; }
  /// Elements of the unit's flat vector, padded so that every cut is a whole number of grains.
  int64_t elements(const model::Unit& unit) const;
  /// Over how many levels the unit's weights are cut. Units of at most placement.resident elements are whole on every rank.
  int weights_reach(const model::Unit& unit) const;
  /// Over how many levels the unit's gradient accumulators are cut. A tied table's are whole: its two gradients are added
  /// before they are reduced.
  int gradient_reach(const model::Unit& unit) const;
  /// Whether the optimizer's fp32 weights are a buffer of their own: where weights are of another type, or where a lossy
  /// wire brings them to the ranks that compute with them.
  bool separate_master(const model::Unit& unit) const;
  /// How the job lets values of a purpose travel over a level.
  device::Wire wire(job::Purpose purpose, int level) const;
  layout::Cut cut(const model::Unit& unit, int reach) const;

  BlockId add_block(Block block);
  /// Appends a task that runs `block` for a unit (-1: of none) and micro-batch (-1: of none), its formals bound by role.
  void add_compute(BlockId block, int unit, int micro_batch);
  /// Appends a transfer with the staging memory that it takes; `feedback`: -1, or where its errors are kept.
  void add_transfer(Transfer transfer, int micro_batch, BufferId in, BufferId out, BufferId feedback = -1);
  /// Appends a message between two stages of the same data-parallel rank, if this rank is one of them: `values` of `dtype`,
  /// `number` among all messages. `way`: of those that never wait for each other, 0 to 3; each has streams of its own.
  void add_message(Purpose purpose, int unit, int micro_batch, int32_t from, int32_t to, BufferId values, DType dtype,
                   int32_t number, int way);
  /// The buffer that a formal of this role means for a unit and micro-batch; made at first use.
  BufferId buffer(ops::Role role, int unit, int micro_batch, int64_t bytes);
  /// A buffer of its own, known to no role.
  BufferId add_buffer(BufferKind kind, ops::Role role, int unit, int micro_batch, int64_t bytes);
  /// A view within a buffer that holds the cut `outer` of the same vector of `dtype`.
  BufferId add_view(BufferId owner, layout::Cut outer, layout::Cut inner, DType dtype);
  /// From now on tasks of this unit see this buffer for its parameters or gradient.
  void bind(ops::Role role, int unit, BufferId id) { bound_[{role, unit}] = id; }

 private:
  std::map<std::tuple<ops::Role, int, int>, BufferId> buffers_;
  std::map<std::pair<ops::Role, int>, BufferId> bound_;
  int32_t collectives_ = 0, stage_collectives_ = 0;
};

/// blocks.cpp's result, as blocks of the program, for each kind of unit.
void add_unit_blocks(Lowering& lowering);
/// Persistent buffers, in the order in which all goals share them.
void add_states(Lowering& lowering);

/// sharding.cpp: the placement's transfers around one unit's tasks. DDP, ZeRO, HSDP, MiCS, ZeRO++ and zero-topo are here.
class Sharding {
 public:
  explicit Sharding(Lowering& lowering);
  /// Weights that the block, about to run for the unit, reads.
  void before(const model::Unit& unit, BlockId block, int micro_batch);
  /// Gradients that its backward has written.
  void after_backward(const model::Unit& unit, int micro_batch);
  /// Accumulated gradients outwards, once a step; for a tied table only after its two gradients are one.
  void reduce_outwards(const model::Unit& unit);
  /// From here on the update sees each unit's optimizer shard of gradients and weights.
  void bind_optimizer_shards();
  /// The sums that every rank needs: norm before the clip, losses at the end.
  void reduce_norm();
  void reduce_losses();

 private:
  /// A vector's buffer and the cut that it holds.
  struct Held {
    BufferId buffer;
    layout::Cut cut;
  };
  /// What the hops of one collective have in common.
  struct Work {
    Purpose purpose;
    job::Purpose rule;  ///< whose wires and hops
    const model::Unit& unit;
    DType dtype;
    int micro_batch = -1;
  };
  std::vector<job::Hop> hops(job::Purpose rule, int first, int last) const;
  /// Whether ranks form one ring: never where sums would be quantised again at every rank.
  bool flat(job::Purpose rule, int last) const;
  Transfer hop(const Work& work, comm::Collective collective, const job::Hop& levels, const layout::Cut& whole) const;
  /// `whole`, which lies in `to`, out of its parts over levels [first, last), outermost hop first. This rank's part is in
  /// `from`, or at its place.
  void gather_hops(const Work& work, int first, int last, BufferId from, Held to, const layout::Cut& whole);
  /// The sum over levels [first, last) of `whole`, which lies in `from`, each rank getting its part: in `to`, or at its
  /// place. Innermost hop first.
  void reduce_hops(const Work& work, int first, int last, Held from, layout::Cut whole, BufferId to, bool accumulate);
  /// A few values summed where they are, level by level.
  void sum_few(Purpose purpose, int last, BufferId values, DType dtype, int64_t count);

  void gather_update(const model::Unit& unit);
  void gather(const model::Unit& unit, Phase phase, int micro_batch);
  BufferId accumulators(const model::Unit& unit);
  /// Where a micro-batch's whole gradient is before it is reduced.
  BufferId parts(const model::Unit& unit, int micro_batch);

  Lowering& lowering_;
  int whole_for_ = -1;                  ///< unit whose gathered weights are still there
  std::vector<bool> current_;           ///< by unit: weights are those of the last update
  std::vector<BufferId> weights_;       ///< by unit: what this rank keeps of them
  std::vector<BufferId> secondary_;     ///< by unit: -1 until its first gather
  std::vector<BufferId> accumulators_;  ///< by unit: -1 until its first backward
  std::vector<BufferId> feedback_;      ///< by unit: -1 if no error is kept
  /// By unit: the micro-batch whose forward left them, and gathered weights that wait for its backward.
  std::vector<std::pair<int, BufferId>> kept_;
  std::map<std::pair<int, int>, BufferId> parts_;  ///< by unit and micro-batch
};

/// pipeline.cpp: every slot of the stage's schedule, with what it receives and sends.
void add_slots(Lowering& lowering, Sharding& sharding);
/// pipeline.cpp: a tied table's two gradients to the stages that have a copy each; nothing if one stage has both.
void exchange_tied_gradients(Lowering& lowering);
/// update.cpp: tied gradients, norm, clip, optimizer.
void add_update(Lowering& lowering, Sharding& sharding);
/// prefetch.cpp: weights' gathers earlier, at most `depth` units' tasks and `bytes` of gathered weights ahead (0: no bound).
void prefetch(Program& program, int64_t depth, int64_t bytes);
/// memory.cpp: offsets for all buffers; those of the step behind `front_bytes` (Request) and what persists.
void place_memory(Program& program, int64_t front_bytes);
/// link.cpp: dependencies between streams, from reads and writes in program order and from bytes that buffers share.
void link(Program& program);

}  // namespace strata::step
