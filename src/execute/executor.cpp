#include "execute/executor.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"

namespace strata::execute {

Executor::Executor(const step::Program& program, device::Device& device, device::Address arena, const Peers& peers)
    : program_(program), device_(device), arena_(arena), timeline_(program.tasks.size()) {
  const bool alone =
      std::all_of(program.tasks.begin(), program.tasks.end(), [&](const auto& task) { return program.block_of(task); });
  if (!alone) {
    STRATA_CHECK(peers.transport != nullptr, "a program with transfers, and no one to send to");
    transfers_ = std::make_unique<Transfers>(program, device, arena, peers, timeline_);
  }
  size_t widest = 0;
  for (const step::Block& block : program.blocks) {
    std::vector<PreparedOp>& prepared = blocks_.emplace_back();
    for (const ops::Op& op : block.ops) {
      PreparedOp& p = prepared.emplace_back();
      p.kernel = device.prepare(op, block.tensors);
      p.operands = op.in;
      p.operands.insert(p.operands.end(), op.out.begin(), op.out.end());
      if (op.workspace >= 0) p.operands.push_back(op.workspace);
      widest = std::max(widest, p.operands.size());
    }
  }
  operands_.resize(widest);
}

const step::Traffic& Executor::sent() const {
  static const step::Traffic none;
  return transfers_ ? transfers_->sent() : none;
}

void Executor::run(uint64_t noise) {
  using Clock = std::chrono::steady_clock;
  const auto start = started_ = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  if (transfers_) transfers_->begin(start, noise);
  for (size_t t = 0; t < program_.tasks.size(); ++t) {
    const step::Task& task = program_.tasks[t];
    const auto* work = std::get_if<step::Compute>(&task.work);
    if (!work) continue;
    const step::Compute& compute = *work;
    if (transfers_) transfers_->wait_before(task);
    const auto block_index = static_cast<size_t>(compute.block);
    const step::Block& block = program_.blocks[block_index];
    const step::BufferId* buffers = program_.buffer_lists.data() + task.buffers.begin;
    const device::Launch launch{compute.unit, task.micro_batch};
    step::Span& span = timeline_[t];
    span = {static_cast<step::TaskId>(t), task.stream, seconds(), 0};
    for (size_t o = 0; o < blocks_[block_index].size(); ++o) {
      const PreparedOp& op = blocks_[block_index][o];
      for (size_t i = 0; i < op.operands.size(); ++i) {
        const ops::Tensor& tensor = block.tensors[static_cast<size_t>(op.operands[i])];
        const step::Buffer& buffer = program_.buffers[static_cast<size_t>(buffers[tensor.formal])];
        operands_[i] = arena_ + buffer.offset + tensor.offset;
      }
      const double before = operation_seconds_.empty() ? 0 : seconds();
      device_.launch(*op.kernel, std::span(operands_.data(), op.operands.size()), launch);
      if (!operation_seconds_.empty()) {
        device_.synchronise();
        operation_seconds_[block_index][o] += seconds() - before;
      }
    }
    // A task that others wait for has ended when the device is done with it, not when it is queued.
    if (transfers_) device_.synchronise();
    span.end = seconds();
    if (transfers_) transfers_->computed(static_cast<step::TaskId>(t));
  }
  device_.synchronise();
  if (transfers_) transfers_->finish();
}

void Executor::time_operations() {
  operation_seconds_.clear();
  for (const std::vector<PreparedOp>& block : blocks_) operation_seconds_.emplace_back(block.size(), 0.0);
}

device::Address Executor::address(ops::Role role, int unit, int micro_batch, int64_t offset, int64_t bytes) const {
  const step::Buffer& buffer = program_.find(role, unit, micro_batch);
  STRATA_CHECK(offset >= 0 && offset + bytes <= buffer.bytes, "{} bytes at {} of a buffer of {}", bytes, offset,
               buffer.bytes);
  return arena_ + buffer.offset + offset;
}

void Executor::write(ops::Role role, int unit, int micro_batch, std::span<const std::byte> bytes, int64_t offset) {
  const auto size = static_cast<int64_t>(bytes.size());
  device_.upload(address(role, unit, micro_batch, offset, size), bytes.data(), size);
}

void Executor::read(ops::Role role, int unit, int micro_batch, std::span<std::byte> bytes, int64_t offset) const {
  const auto size = static_cast<int64_t>(bytes.size());
  device_.download(bytes.data(), address(role, unit, micro_batch, offset, size), size);
}

void Executor::zero(ops::Role role, int unit, int micro_batch) {
  const int64_t bytes = program_.find(role, unit, micro_batch).bytes;
  device_.fill_zero(address(role, unit, micro_batch, 0, bytes), bytes);
}

}  // namespace strata::execute
