#pragma once

#include <CLI/CLI.hpp>

namespace strata::cli {

/// strata bench comm, below the verb bench.
void add_bench_comm(CLI::App& bench);

}  // namespace strata::cli
