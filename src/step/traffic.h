#pragma once
// Bytes and messages that one rank sends in a step, by level, purpose and wire: as the program counts them beforehand, or as a
// ledger counted them at the send.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/hop_run.h"
#include "step/program.h"

namespace strata::step {

class Traffic {
 public:
  struct Key {
    int32_t level;
    Purpose purpose;
    std::string wire;
    auto operator<=>(const Key&) const = default;
  };
  /// Sets up the entry, so that adding to it allocates nothing.
  comm::Sent& at(const Key& key) { return entries_[key]; }
  const std::map<Key, comm::Sent>& entries() const { return entries_; }
  void add(const Traffic& other, int64_t times = 1);
  void clear();
  int64_t bytes(int32_t level) const;
  /// Entries that are zero on one side and absent on the other are equal.
  bool operator==(const Traffic& other) const;

 private:
  std::map<Key, comm::Sent> entries_;
};

/// "fp32", "bf16", "int8", ...
std::string wire_name(const device::Wire& wire);

/// This rank's number among the members of a transfer's hop, and their ranks.
int64_t member_of(const Program& program, const Transfer& transfer);
std::vector<int64_t> members_of(const Program& program, const Transfer& transfer);

/// A program's transfers told apart by levels and hop, which many units and micro-batches share.
struct DistinctHops {
  std::vector<const Transfer*> hops;  ///< the first of each
  std::vector<int32_t> of_task;       ///< by task: its place in `hops`; -1: it computes
};
DistinctHops distinct_hops(const Program& program);

/// What one run of the program sends; only what belongs to one micro-batch, if one is given.
Traffic traffic(const Program& program, std::optional<int32_t> micro_batch = {});

}  // namespace strata::step
