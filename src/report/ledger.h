#pragma once
// The ledger of a run: bytes and messages that all ranks sent, by level, purpose and wire, beside what the programs count.

#include <span>
#include <string>
#include <vector>

#include "comm/hop_run.h"
#include "train/observer.h"

namespace strata::report {

struct LedgerRow {
  std::string level, purpose, wire;
  comm::Sent sent;     ///< counted at the send
  comm::Sent planned;  ///< the programs' own count of the runs that were made
  bool as_planned() const { return sent == planned; }
};

/// Levels innermost first; what is zero on both sides is left out. A level without a name is "level N".
std::vector<LedgerRow> ledger(const train::RunEnd& end, std::span<const std::string> level_names);

/// The rows together.
LedgerRow total(std::span<const LedgerRow> rows);

/// As a table for people, and below it whether bytes and messages are those that the programs count, with every difference
/// if not. `steps`: that were made; a mean a step counts validations in. Nothing if nothing was sent or planned.
std::vector<std::string> ledger_lines(std::span<const LedgerRow> rows, int64_t steps);

/// The differences alone, one line each.
std::vector<std::string> ledger_differences(std::span<const LedgerRow> rows);

}  // namespace strata::report
