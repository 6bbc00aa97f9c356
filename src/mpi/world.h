#pragma once
// MPI: the processes of a run, and messages between them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/messages.h"
#include "comm/transport.h"

namespace strata::mpi {

/// "Open MPI 4.1.4", "MPICH 4.0.2"; "" in a build without MPI.
std::string library();

/// Whether something that starts MPI processes (mpirun, srun, a PMI) has started this one. Touches no MPI.
bool launched();

/// Ranks on this node, as far as the launcher says so; 1 if it does not. Touches no MPI.
int ranks_on_node();

/// MPI from construction to destruction; at most one in a process, and none after it. Made and ended on one thread.
class World {
 public:
  /// `thread_a_level`: the transport may be called from several threads at a time (MPI_THREAD_MULTIPLE); otherwise from one
  /// thread at a time (MPI_THREAD_SERIALIZED). Throws a run error if the MPI library gives neither.
  explicit World(bool thread_a_level);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  comm::Transport& transport();
  /// For each rank, the lowest rank with which it shares memory: which ranks are on one node.
  const std::vector<int64_t>& nodes() const;
  /// The library's own collective over all ranks, on f32 on the host, blocking: to measure beside. all_gather: `in` is this
  /// rank's `elements` / ranks values, reduce_scatter: `out` is.
  void library_collective(comm::Collective collective, const float* in, float* out, int64_t elements);
  /// Ends all processes of the run at once, with this exit code, whatever they are doing.
  [[noreturn]] void abort(int code);

 private:
  class Messages;
  std::unique_ptr<Messages> messages_;
  std::vector<int64_t> nodes_;
};

}  // namespace strata::mpi
