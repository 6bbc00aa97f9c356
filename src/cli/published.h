#pragma once
// What was published of sharding schemes on machines of three speeds, and what their baselines are taken to be: bench placements
// runs it, bench region looks for where it holds.

#include <string>

#include "job/job.h"

namespace strata::cli {

/// How much faster one placement is said to be than another.
struct Gain {
  const char *of, *over;  ///< presets
  double published;
};
/// 20B parameters on up to 384 dies of Frontier (arXiv 2501.04266).
inline constexpr Gain gains[] = {
    {"zeropp", "zero3", 1.405}, {"zero-topo", "zeropp", 1.71}, {"zero-topo", "zero3", 2.40}};

/// The job under a placement preset with collectives by level.
job::Job by_level(job::Job job, const std::string& preset);

/// As published: a flat ring over all ranks that take part. `prefetch`: units whose weights are gathered ahead of use;
/// 0: no communication overlaps with computing.
job::Job as_flat_rings(job::Job job, const std::string& preset, int64_t prefetch);

}  // namespace strata::cli
