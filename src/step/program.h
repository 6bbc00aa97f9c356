#pragma once
// The step program: what one rank does between two updates, as plain data. build.h makes it; execute/ runs it, simulate/
// prices it, explain.h prints it. Nothing else decides what is computed, communicated, kept or freed.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/types.h"
#include "ops/cost.h"
#include "ops/op.h"

namespace strata::step {

enum class Goal : uint8_t { train, evaluate, generate };
std::string_view name_of(Goal goal);

/// `update` is everything between the last backward and the end of the step.
enum class Phase : uint8_t { forward, backward, update };
std::string_view name_of(Phase phase);

enum class BufferKind : uint8_t {
  weights,              ///< persistent: the unit's parameters (compute type; in fp32 runs the master as well)
  moments,              ///< persistent: AdamW's first and second moment, one buffer each
  constant,             ///< persistent: tables filled before the first step
  cache,                ///< persistent: keys and values of generation
  input,                ///< written by the host before the step: tokens, targets, StepInputs
  result,               ///< read by the host after the step: losses, StepResults, logits
  gradients,            ///< fp32 accumulators
  activation,           ///< what one unit hands to the next
  activation_gradient,  ///< and what it gets back
  saved,                ///< kept from a unit's forward to its backward
  scratch,              ///< inside one task: temporaries and library workspace
};
std::string_view name_of(BufferKind kind);
inline constexpr int buffer_kinds = 11;

using BufferId = int32_t;
using BlockId = int32_t;
using TaskId = int32_t;

struct Buffer {
  BufferKind kind;
  ops::Role role;        ///< what its bytes are to the operations
  int64_t bytes = 0;
  int64_t offset = -1;   ///< in the arena; set by memory.cpp only
  int32_t unit = -1, micro_batch = -1;  ///< -1: of the whole step
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
  ops::Cost cost;            ///< of one run
  double recompute_flops = 0;///< part of cost.flops that remakes what forward made before
};

/// A range in one of the program's lists.
struct Slice {
  int32_t begin = 0, end = 0;
};

struct Compute {
  BlockId block;
  int32_t unit;  ///< index in the model; -1: of no unit
};

/// Streams: 0 computes; the others carry one level's transfers each.
using StreamId = int32_t;

struct Task {
  Compute work;
  int32_t micro_batch = -1;
  StreamId stream = 0;
  Slice buffers;  ///< in Program::buffer_lists: what the block's formals are, in order
  Slice after;    ///< in Program::edges: tasks of other streams that must be done first; a stream runs in order anyway
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
  std::vector<std::string> unit_names;

  int32_t micro_batches = 0;
  bool inspect = false;  ///< Request::inspect
  int64_t batch = 0, sequence = 0;  ///< of a micro-batch

  /// The one buffer of this role, unit and micro-batch; throws InternalError if there is none.
  const Buffer& find(ops::Role role, int unit = -1, int micro_batch = -1) const;
  double flops() const;            ///< of one step
  double recompute_flops() const;  ///< the part spent on remaking
};

}  // namespace strata::step
