#pragma once

#include <CLI/CLI.hpp>

namespace strata::cli {

/// `strata bench wires`: encoding for the wire and back against memcpy of as many bytes. `bench` is the verb above it.
void add_bench_wires(CLI::App& bench);

}  // namespace strata::cli
