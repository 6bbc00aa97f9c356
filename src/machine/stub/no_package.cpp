#include "machine/levels.h"

namespace strata::machine {

int64_t package_of_process() { return -1; }

}  // namespace strata::machine
