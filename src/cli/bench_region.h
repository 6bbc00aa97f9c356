#pragma once

#include <CLI/CLI.hpp>

namespace strata::cli {

/// strata bench region, below the verb bench.
void add_bench_region(CLI::App& bench);

}  // namespace strata::cli
