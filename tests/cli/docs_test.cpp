// Documents that are made by a command are what it prints.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "cli/run.h"

namespace strata::cli {
namespace {

TEST(Docs, TheTableOfJobKeysIsTheProgramsOwn) {
  std::ifstream file(STRATA_SOURCE_DIR "/docs/job-keys.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, run_program(STRATA_PROGRAM, {"config", "keys"}).out)
      << "make it anew: strata config keys > docs/job-keys.md";
}

}  // namespace
}  // namespace strata::cli
