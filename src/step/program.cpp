#include "step/program.h"

#include <algorithm>

#include "core/error.h"

namespace strata::step {

std::string_view name_of(Goal goal) {
  switch (goal) {
    case Goal::train: return "train";
    case Goal::evaluate: return "evaluate";
    case Goal::generate: return "generate";
  }
  return "?";
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::backward_input: return "backward_input";
    case Phase::backward_weight: return "backward_weight";
    case Phase::update: return "update";
  }
  return "?";
}

std::string_view name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::weights: return "weights";
    case BufferKind::master: return "master";
    case BufferKind::moments: return "moments";
    case BufferKind::constant: return "constant";
    case BufferKind::cache: return "cache";
    case BufferKind::input: return "input";
    case BufferKind::result: return "result";
    case BufferKind::gradients: return "gradients";
    case BufferKind::activation: return "activation";
    case BufferKind::activation_gradient: return "activation_gradient";
    case BufferKind::saved: return "saved";
    case BufferKind::held: return "held";
    case BufferKind::scratch: return "scratch";
    case BufferKind::gathered_weights: return "gathered_weights";
    case BufferKind::secondary: return "secondary";
    case BufferKind::gradient_parts: return "gradient_parts";
    case BufferKind::staging: return "staging";
    case BufferKind::feedback: return "feedback";
  }
  return "?";
}

const Buffer& Program::find(ops::Role role, int unit, int micro_batch) const {
  for (const Buffer& buffer : buffers)
    if (buffer.role == role && buffer.unit == unit && buffer.micro_batch == micro_batch) return buffer;
  STRATA_CHECK(false, "no buffer of role {}, unit {}, micro-batch {}", ops::name_of(role), unit, micro_batch);
  return buffers.front();
}

bool Program::has(ops::Role role, int unit) const {
  return std::any_of(buffers.begin(), buffers.end(),
                     [=](const Buffer& buffer) { return buffer.role == role && (unit < 0 || buffer.unit == unit); });
}

std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights_forward: return "weights_forward";
    case Purpose::weights_backward: return "weights_backward";
    case Purpose::gradients: return "gradients";
    case Purpose::reduction: return "reduction";
    case Purpose::update: return "update";
    case Purpose::norm: return "norm";
    case Purpose::loss: return "loss";
    case Purpose::activations: return "activations";
    case Purpose::activation_gradients: return "activation_gradients";
    case Purpose::tie: return "tie";
  }
  return "?";
}

int32_t tag_of(const Transfer& transfer) {
  // Collectives and messages of the same two ranks may be under way at once.
  constexpr int32_t half = 1 << 14;
  return transfer.sequence % (half - 1) + (transfer.message() ? half : 0);
}

BufferId Program::owner(BufferId buffer) const {
  const BufferId within = buffers[static_cast<size_t>(buffer)].within;
  return within < 0 ? buffer : within;
}

const Block* Program::block_of(const Task& task) const {
  const auto* run = std::get_if<Compute>(&task.work);
  return run ? &blocks[static_cast<size_t>(run->block)] : nullptr;
}

std::vector<Access> Program::accesses(const Task& task) const {
  std::vector<Access> result;
  const Block* block = block_of(task);
  for (int32_t i = task.buffers.begin; i < task.buffers.end; ++i) {
    const auto position = static_cast<size_t>(i - task.buffers.begin);
    const BufferId buffer = buffer_lists[static_cast<size_t>(i)];
    if (block != nullptr) {
      result.push_back({buffer, block->formals[position].read, block->formals[position].written});
    } else {
      // in, out, staging, error feedback.
      const Transfer& transfer = std::get<Transfer>(task.work);
      if (transfer.message()) {
        result.push_back({buffer, transfer.ends[0] == rank, transfer.ends[1] == rank});
        continue;
      }
      const bool errors = transfer.feedback && i + 1 == task.buffers.end;
      const bool read = position == 0 || (position == 1 && transfer.accumulate) || errors;
      result.push_back({buffer, read, position > 0});
    }
  }
  return result;
}

double Program::flops() const {
  double sum = 0;
  for (const Task& task : tasks)
    if (const Block* block = block_of(task)) sum += block->cost.flops;
  return sum;
}

double Program::recompute_flops() const {
  double sum = 0;
  for (const Task& task : tasks)
    if (const Block* block = block_of(task)) sum += block->recompute_flops;
  return sum;
}

}  // namespace strata::step
