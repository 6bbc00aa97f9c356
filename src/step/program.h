#pragma once
// The step program: what one rank does between two updates, as plain data. build.h makes it; execute/ runs it, simulate/
// prices it, explain.h prints it. Nothing else decides what is computed, communicated, kept or freed.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "comm/messages.h"
#include "core/types.h"
#include "layout/cuts.h"
#include "layout/mesh.h"
#include "ops/cost.h"
#include "ops/op.h"

namespace strata::step {

enum class Goal : uint8_t { train, evaluate, generate };
std::string_view name_of(Goal goal);

/// A backward pass may come as two halves: the input's gradient, which the unit before waits for, and the weights'. `update` is
/// everything between the last backward and the end of the step.
enum class Phase : uint8_t { forward, backward, backward_input, backward_weight, update };
std::string_view name_of(Phase phase);

enum class BufferKind : uint8_t {
  weights,              ///< persistent: the unit's parameters (compute type; in fp32 runs the master as well)
  master,               ///< persistent: fp32 weights of the optimizer shard, in mixed precision
  moments,              ///< persistent: AdamW's first and second moment, one buffer each; 8-bit ones with their scales
  feedback,             ///< persistent: errors of quantised reductions, to be made up for
  constant,             ///< persistent: tables filled before the first step
  cache,                ///< persistent: keys and values of generation
  input,                ///< written by the host before the step: tokens, targets, StepInputs
  result,               ///< read by the host after the step: losses, StepResults, logits
  gradients,            ///< fp32 accumulators
  activation,           ///< what one unit hands to the next
  activation_gradient,  ///< and what it gets back
  saved,                ///< kept from a unit's forward to its backward
  held,                 ///< kept from the input half of a unit's backward to its weight half
  scratch,              ///< inside one task: temporaries and library workspace
  gathered_weights,     ///< a unit's whole weights, for as long as a task needs them
  secondary,            ///< a second, narrower sharded copy of the weights for later gathers of the same step
  gradient_parts,  ///< a unit's whole gradient of one micro-batch, before it is reduced into the accumulators' shard
  staging,         ///< encoded and arriving values of one transfer
};
std::string_view name_of(BufferKind kind);
inline constexpr int buffer_kinds = 18;

using BufferId = int32_t;
using BlockId = int32_t;
using TaskId = int32_t;

struct Buffer {
  BufferKind kind;
  ops::Role role;  ///< what its bytes are to the operations
  int64_t bytes = 0;
  int64_t offset = -1;                  ///< in the arena; set by memory.cpp only
  int32_t unit = -1, micro_batch = -1;  ///< -1: of the whole step
  int64_t first = 0;     ///< the element of the unit's flat vector that it begins with, if it holds a part of one
  BufferId within = -1;  ///< a view into another buffer, `begin` bytes from its start: takes no memory of its own
  int64_t begin = 0;
  bool persistent() const { return kind <= BufferKind::cache; }
};

/// One operand of a block: a buffer that a task binds. Tensors are views into formals.
struct Formal {
  ops::Role role;
  int64_t bytes = 0;
  bool read = false, written = false;  ///< before it is written; at all
};

/// Straight-line operations of one unit in one phase, lowered once and shared by all equal layers and micro-batches.
struct Block {
  std::string name;  ///< "layer/forward"
  Phase phase;
  std::vector<ops::Op> ops;
  std::vector<ops::Tensor> tensors;
  std::vector<Formal> formals;
  ops::Cost cost;              ///< of one run
  double recompute_flops = 0;  ///< part of cost.flops that remakes what forward made before
};

/// A range in one of the program's lists.
struct Slice {
  int32_t begin = 0, end = 0;
};

struct Compute {
  BlockId block;
  int32_t unit;  ///< index in the model; -1: of no unit
};

/// What a transfer is for: wires, ledgers and traces tell these apart.
enum class Purpose : uint8_t {
  weights_forward,       ///< weights gathered for a forward
  weights_backward,      ///< and for a backward
  gradients,             ///< one micro-batch's gradient reduced up to the gradients' level
  reduction,             ///< accumulated gradients reduced outwards, once a step
  update,                ///< new weights gathered from the optimizer's level in, at their first use in the next step
  norm,                  ///< the gradient norm's wide sum
  loss,                  ///< losses, to report
  activations,           ///< from one pipeline stage to the next
  activation_gradients,  ///< and back
  tie,                   ///< a tied table's two gradients, between the stages that have a copy each
};
std::string_view name_of(Purpose purpose);
inline constexpr int purposes = 10;
/// Whether what it gathers is for a computing task that comes after it.
constexpr bool brings_weights(Purpose purpose) {
  return purpose == Purpose::weights_forward || purpose == Purpose::weights_backward || purpose == Purpose::update;
}

/// One hop of a collective, over the ranks that share all coordinates but those of an axis in levels [first, last), or a message
/// from one rank to another. Buffers of the task: in, out, staging memory if `staged`, error feedback if `feedback`; of a message
/// the one that is sent or filled.
struct Transfer {
  comm::Hop hop;
  Purpose purpose;
  int32_t first_level, last_level;
  int64_t first = 0;        ///< element of the unit's flat vector with which the hop's vector begins
  bool accumulate = false;  ///< a reduction that is added to what `out` holds
  bool staged = false, feedback = false;
  int32_t unit = -1;
  /// Its number among the program's collectives or among its messages, the same on all ranks that take part.
  int32_t sequence = 0;
  layout::Axis axis = layout::Axis::data;
  std::array<int64_t, 2> ends = {-1, -1};  ///< of a message: the ranks that send and receive
  bool message() const { return hop.collective == comm::Collective::send; }
};
/// What tells a transfer's messages from others between the same ranks.
int32_t tag_of(const Transfer& transfer);

/// Streams: 0 computes; then one for each level's collectives among data-parallel peers, then one each for the sums over pipeline
/// stages and for what leaves and enters a stage forward and backward (Program::stream_names).
using StreamId = int32_t;

struct Task {
  std::variant<Compute, Transfer> work;
  int32_t micro_batch = -1;
  StreamId stream = 0;
  Slice buffers;  ///< in Program::buffer_lists: what the block's formals are, in order; see Transfer for transfers
  Slice after;    ///< in Program::edges: tasks of other streams that must be done first; a stream runs in order anyway
};

/// One buffer as a task uses it.
struct Access {
  BufferId buffer;
  bool read, written;
};

/// How a unit's flat vector is shared out.
struct UnitLayout {
  std::string name;
  int64_t elements = 0;  ///< padding included
  int weights_reach = 0, optimizer_reach = 0;
  int32_t stage = 0;  ///< of the pipeline; the last one may have a copy of a tied table's unit
  bool here = true;   ///< whether this rank has states of it
};

struct Program {
  Goal goal;
  int64_t arena_bytes = 0;       ///< the whole allocation
  int64_t persistent_bytes = 0;  ///< its front, kept from step to step, Request::front_bytes included
  std::vector<Buffer> buffers;
  std::vector<Block> blocks;
  std::vector<Task> tasks;
  std::vector<BufferId> buffer_lists;
  std::vector<TaskId> edges;
  std::vector<UnitLayout> units;
  std::vector<std::string> level_names;  ///< of the machine, innermost first
  layout::Widths widths;                 ///< data-parallel ranks of each level
  layout::Mesh mesh;                     ///< all ranks
  int64_t rank = 0;                      ///< whose program it is
  std::vector<std::string> stream_names;

  DType compute = DType::f32;  ///< of weights and activations
  int32_t micro_batches = 0;
  int64_t prefetch = 0;             ///< computing tasks that a gather of weights may come before its own
  int64_t overlap = 0;              ///< computing tasks for which what a reduction used stays its own
  bool inspect = false;             ///< Request::inspect
  int64_t batch = 0, sequence = 0;  ///< of a micro-batch

  /// The one buffer of this role, unit and micro-batch; throws InternalError if there is none.
  const Buffer& find(ops::Role role, int unit = -1, int micro_batch = -1) const;
  /// Whether any buffer has this role; of this unit, if one is given.
  bool has(ops::Role role, int unit = -1) const;
  /// The buffers of a task and how it uses them, in the order of its list.
  std::vector<Access> accesses(const Task& task) const;
  /// The buffer whose memory a buffer is in: itself, unless it is a view.
  BufferId owner(BufferId buffer) const;
  /// The block of a compute task; nullptr for a transfer.
  const Block* block_of(const Task& task) const;
  double flops() const;            ///< of one step
  double recompute_flops() const;  ///< the part spent on remaking
};

}  // namespace strata::step
