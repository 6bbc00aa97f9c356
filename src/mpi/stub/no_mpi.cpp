// Stands in for MPI in a build without it: there is never more than one rank, and a launcher is told so.

#include "core/error.h"
#include "mpi/world.h"

#include <cstdlib>

namespace strata::mpi {

class World::Messages {};

std::string library() { return ""; }

bool launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "MPI_LOCALNRANKS"})
    if (std::getenv(name)) return true;
  return false;
}

int ranks_on_node() { return 1; }

World::World(bool) {
  throw input_error(
      "this strata was built without MPI and cannot be one of several ranks; build it where an MPI library is found");
}
World::~World() = default;
comm::Transport& World::transport() { std::abort(); }
const std::vector<int64_t>& World::nodes() const { return nodes_; }
void World::library_collective(comm::Collective, const float*, float*, int64_t) {}
void World::abort(int code) { std::_Exit(code); }

}  // namespace strata::mpi
