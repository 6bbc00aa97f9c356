#include "cli/published.h"

#include <utility>

namespace strata::cli {

job::Job by_level(job::Job job, const std::string& preset) {
  job.placement.preset = preset;
  job.placement.collectives = job::Collectives::levels;
  return job;
}

job::Job as_flat_rings(job::Job job, const std::string& preset, int64_t prefetch) {
  job = by_level(std::move(job), preset);
  job.placement.collectives = job::Collectives::flat;
  job.schedule.prefetch = prefetch;
  if (prefetch == 0) job.schedule.overlap = 0;
  return job;
}

}  // namespace strata::cli
