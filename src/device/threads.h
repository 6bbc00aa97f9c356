#pragma once
// How many threads there are, how they wait and where they run.

#include <string>
#include <utility>
#include <vector>

namespace strata::device {

/// Cores that this process may run on (its affinity mask, as a launcher or a container set it): cores, not hardware
/// threads, where the machine tells them apart. At least 1.
int usable_cores();

/// Environment that the OpenMP runtime should have been started with, as far as the user has not set it. It reads these
/// variables when it is loaded and by default its idle threads spin for milliseconds, which is ruinous once something else
/// wants the cores: a thread spins while the one that it waits for cannot run. More threads than cores yield at once; others
/// spin for a fraction of a millisecond, which costs nothing on a machine of one's own.
std::vector<std::pair<std::string, std::string>> wanted_environment(int threads, int ranks_on_node, int cores);

/// Call first in main, before MPI and before any thread: starts the program over, once, if its environment has to
/// change (see wanted_environment), then sets OpenMP's thread count. Where this process has all its cores to itself (as
/// many cores as threads, no other rank among them), threads 1.. are bound to a core each; the first is left free, so
/// that threads it makes (progress, writing) do not inherit a single core. Bound not at all if OMP_PROC_BIND is set.
/// `arguments` is main's argv.
void prepare_threads(int threads, int ranks_on_node, char** arguments);

}  // namespace strata::device
