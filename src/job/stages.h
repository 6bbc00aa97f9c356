#pragma once
// Which units of a model each pipeline stage holds, and how the job's ranks are laid onto a machine's levels.

#include <string>
#include <vector>

#include "job/job.h"
#include "layout/mesh.h"

namespace strata::job {

/// Consecutive units of a model (model::units), numbers [first, last).
struct UnitRange {
  int32_t first = 0, last = 0;
  bool operator==(const UnitRange&) const = default;
};

/// Chunks that each stage holds: two in a V, schedule.chunks if interleaved, else one.
int32_t chunks_a_stage(const Job& job);

/// The units of each chunk, in order of the forward pass; mesh.pipeline x chunks_a_stage of them. As schedule.layout says, else so
/// that the most expensive chunk costs as little as can be (floating-point operations, the head's among them), and of such cuts
/// the most even one. Throws an input error, opened by `where`, for a layout that skips, repeats or disorders units or has
/// another number of chunks, and if there are more chunks than units; `where`: file, line and key.
std::vector<UnitRange> chunk_units(const Job& job, const std::string& where = "");

/// The job's axes on levels of these widths. Throws an input error, naming degrees that would fit, if they do not fill them.
layout::Mesh mesh_of(const Job& job, const std::vector<machine::Level>& levels);

}  // namespace strata::job
