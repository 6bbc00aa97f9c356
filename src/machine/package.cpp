#include <hwloc.h>

#include "machine/levels.h"

namespace strata::machine {

int64_t package_of_process() {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return -1;
  int64_t found = -1;
  hwloc_bitmap_t bound = hwloc_bitmap_alloc();
  if (hwloc_topology_load(topology) == 0 && hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_PROCESS) == 0)
    for (hwloc_obj_t package = nullptr;
         (package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, package)) != nullptr;)
      if (hwloc_bitmap_isincluded(bound, package->cpuset)) found = package->logical_index;
  hwloc_bitmap_free(bound);
  hwloc_topology_destroy(topology);
  return found;
}

}  // namespace strata::machine
