#pragma once

#include <CLI/CLI.hpp>

namespace strata::cli {

/// `strata bench kernels`: every memory-bound kernel against the machine's stream rate. `bench` is the verb above it.
void add_bench_kernels(CLI::App& bench);

}  // namespace strata::cli
