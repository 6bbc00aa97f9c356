#include "step/program.h"

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
    case Phase::update: return "update";
  }
  return "?";
}

std::string_view name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::weights: return "weights";
    case BufferKind::moments: return "moments";
    case BufferKind::constant: return "constant";
    case BufferKind::cache: return "cache";
    case BufferKind::input: return "input";
    case BufferKind::result: return "result";
    case BufferKind::gradients: return "gradients";
    case BufferKind::activation: return "activation";
    case BufferKind::activation_gradient: return "activation_gradient";
    case BufferKind::saved: return "saved";
    case BufferKind::scratch: return "scratch";
  }
  return "?";
}

const Buffer& Program::find(ops::Role role, int unit, int micro_batch) const {
  for (const Buffer& buffer : buffers)
    if (buffer.role == role && buffer.unit == unit && buffer.micro_batch == micro_batch) return buffer;
  STRATA_CHECK(false, "no buffer of role {}, unit {}, micro-batch {}", ops::name_of(role), unit, micro_batch);
  return buffers.front();
}

double Program::flops() const {
  double sum = 0;
  for (const Task& task : tasks) sum += blocks[static_cast<size_t>(task.work.block)].cost.flops;
  return sum;
}

double Program::recompute_flops() const {
  double sum = 0;
  for (const Task& task : tasks) sum += blocks[static_cast<size_t>(task.work.block)].recompute_flops;
  return sum;
}

}  // namespace strata::step
