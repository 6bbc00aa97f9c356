#pragma once
// Machine files (machines/*.toml): the levels of a machine, innermost first, with what is known of their links. Every figure
// says where it is from.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "machine/levels.h"

namespace strata::machine {

/// The links by which ranks reach others of the same group of one level.
struct Link {
  double bandwidth = 0;        ///< bytes/s that one link carries in one direction, as measured
  double latency = 0;          ///< seconds from one rank to another, small messages
  int64_t shared_by = 1;       ///< ranks that have one link between them
  std::string source{};        ///< where the figures are from
  double bandwidth_alone = 0;  ///< bytes/s when only one of the ranks that share the link sends; 0: as `bandwidth`

  /// Bytes/s for each of so many ranks below the link that send at the same time.
  double rate(int64_t senders) const {
    const int64_t sharing = std::min(shared_by, senders);
    return sharing == 1 && bandwidth_alone > 0 ? bandwidth_alone : bandwidth / static_cast<double>(sharing);
  }
};

struct Device {
  std::string name{};
  double memory = 0;            ///< bytes that a rank can allocate
  double memory_bandwidth = 0;  ///< bytes/s
  double peak = 0;              ///< FLOP/s of dense 16-bit products, as its maker says
  double peak_fp32 = 0;         ///< and of fp32 ones; a quarter of `peak` where the file does not say
  double product_share = 1;     ///< of the peak that large products reach
  double memory_share = 1;      ///< of memory_bandwidth that kernels bound by it reach
  double launch = 0;            ///< seconds from one operation to the next, whatever its size
  std::string source{};
};

struct Machine {
  std::string name{}, description{};
  Device device;              ///< of one rank
  std::vector<Level> levels;  ///< width 0: as many as there are (outermost only)
  std::vector<Link> links;    ///< of each level
};

/// Reads a machine file's text; `file` names it in errors. Throws an input error with file, line and key for what is
/// missing, unknown or out of range.
Machine parse_machine(std::string_view text, const std::string& file);

/// The machine as such a file; parses back to the same.
std::string show(const Machine& machine);

}  // namespace strata::machine
