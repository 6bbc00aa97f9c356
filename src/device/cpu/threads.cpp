#include "device/threads.h"

#include <hwloc.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace strata::device {
namespace {

constexpr const char* again = "STRATA_STARTED_AGAIN";  // guards against starting over for ever

struct Topology {
  Topology() {
    hwloc_topology_init(&topology);
    hwloc_topology_load(topology);
    mask = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, mask, HWLOC_CPUBIND_PROCESS) != 0)
      hwloc_bitmap_copy(mask, hwloc_topology_get_allowed_cpuset(topology));
    // Machines that tell no cores apart (some virtual ones) count hardware threads.
    for (hwloc_obj_type_t type : {HWLOC_OBJ_CORE, HWLOC_OBJ_PU}) {
      for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;)
        if (hwloc_bitmap_intersects(object->cpuset, mask)) cores.push_back(object);
      if (!cores.empty()) break;
    }
  }
  ~Topology() {
    hwloc_bitmap_free(mask);
    hwloc_topology_destroy(topology);
  }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  /// True if the mask leaves out some of the machine, which means that a launcher dealt out cores.
  bool dealt_out() const { return hwloc_bitmap_isincluded(hwloc_topology_get_allowed_cpuset(topology), mask) == 0; }

  hwloc_topology_t topology = nullptr;
  hwloc_bitmap_t mask = nullptr;
  std::vector<hwloc_obj_t> cores;
};

void bind_all_but_first(const Topology& machine, int threads) {
#pragma omp parallel num_threads(threads)
  {
    const auto rank = static_cast<size_t>(omp_get_thread_num());
    if (rank > 0 && rank < machine.cores.size()) {
      hwloc_bitmap_t where = hwloc_bitmap_dup(machine.cores[rank]->cpuset);
      hwloc_bitmap_and(where, where, machine.mask);
      // Binding is a help, not a need: some systems forbid it.
      (void)hwloc_set_cpubind(machine.topology, where, HWLOC_CPUBIND_THREAD);
      hwloc_bitmap_free(where);
    }
  }
}

}  // namespace

int usable_cores() { return std::max(1, static_cast<int>(Topology().cores.size())); }

std::vector<std::pair<std::string, std::string>> wanted_environment(int threads, int ranks_on_node, int cores) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return {};
  if (threads * ranks_on_node > cores) return {{"OMP_WAIT_POLICY", "PASSIVE"}, {"GOMP_SPINCOUNT", "0"}};
  if (threads == 1) return {};
  return {{"GOMP_SPINCOUNT", "20000"}};
}

void prepare_threads(int threads, int ranks_on_node, char** arguments) {
  const Topology machine;
  const int cores = std::max(1, static_cast<int>(machine.cores.size()));
  // Ranks that a launcher has given cores of their own do not compete.
  const int sharing = machine.dealt_out() ? 1 : std::max(1, ranks_on_node);
  const auto wanted = wanted_environment(threads, sharing, cores);
  if (!wanted.empty() && std::getenv(again) == nullptr) {
    for (const auto& [name, value] : wanted) setenv(name.c_str(), value.c_str(), 1);
    setenv(again, "1", 1);
    execv("/proc/self/exe", arguments);
    // Going on spins, but works.
  }
  omp_set_num_threads(threads);
  if (threads > 1 && threads == cores && sharing == 1 && std::getenv("OMP_PROC_BIND") == nullptr)
    bind_all_but_first(machine, threads);
}

}  // namespace strata::device
