#pragma once

#include <CLI/CLI.hpp>

namespace strata::cli {

/// strata bench placements, below the verb bench.
void add_bench_placements(CLI::App& bench);

}  // namespace strata::cli
