#pragma once
// strata verify tokenizer

#include <CLI/CLI.hpp>

namespace strata::cli {

void add_verify_tokenizer(CLI::App& verify);

}  // namespace strata::cli
