#pragma once
// Runs a step program on a device. Decides nothing: order, buffers and dependencies are the program's.

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "execute/transfers.h"
#include "step/program.h"
#include "step/timeline.h"

namespace strata::execute {

class Executor {
 public:
  /// `program`, `device` and the memory at `arena` (at least program.arena_bytes) outlive the executor. Prepares every
  /// kernel and transfer; running allocates nothing. A program of several ranks needs `peers`.
  Executor(const step::Program& program, device::Device& device, device::Address arena, const Peers& peers = {});

  /// One step: every task once, computing in order, transfers beside it. Inputs have been written; results can be read when
  /// it returns. `noise`: what stochastic wires draw from, another each step. Throws a run error when peers do not answer.
  void run(uint64_t noise = 0);

  /// Bytes and messages sent so far, counted at the send.
  const step::Traffic& sent() const;

  /// Copies to and from the buffer of this role, unit (-1: the whole step's) and micro-batch.
  void write(ops::Role role, int unit, int micro_batch, std::span<const std::byte> bytes, int64_t offset = 0);
  void read(ops::Role role, int unit, int micro_batch, std::span<std::byte> bytes, int64_t offset = 0) const;
  void zero(ops::Role role, int unit, int micro_batch);

  /// From now on runs add up the time of each operation, by block and position in it.
  void time_operations();
  const std::vector<std::vector<double>>& operation_seconds() const { return operation_seconds_; }

  /// When each task of the last run began and ended, and when the run did: what its spans count from.
  const step::Timeline& timeline() const { return timeline_; }
  std::chrono::steady_clock::time_point started() const { return started_; }
  const step::Program& program() const { return program_; }

 private:
  struct PreparedOp {
    std::unique_ptr<device::Kernel> kernel;
    std::vector<int> operands;  // tensors of the block
  };

  device::Address address(ops::Role role, int unit, int micro_batch, int64_t offset, int64_t bytes) const;

  const step::Program& program_;
  device::Device& device_;
  device::Address arena_;
  std::vector<std::vector<PreparedOp>> blocks_;
  std::vector<device::Address> operands_;  // room for the widest op
  step::Timeline timeline_;
  std::chrono::steady_clock::time_point started_;
  std::vector<std::vector<double>> operation_seconds_;  // empty: not timed
  std::unique_ptr<Transfers> transfers_;                // null: the program has none. Ends before what it writes to
};

}  // namespace strata::execute
