#pragma once

#include "mpi/world.h"

namespace strata::mpi {

/// Of this test run.
extern World* world;

}  // namespace strata::mpi
