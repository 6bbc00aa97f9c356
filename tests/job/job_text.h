#pragma once
// Job files for tests, and the message of a refused one.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "job/job.h"

namespace strata::job {

/// The whole file of the design document, all sections, every line a key or a section: line numbers matter to tests.
inline constexpr std::string_view whole_file = R"([model]
preset = "gpt-neox-20b"
[data]
train = [{ path = "pile_text_document", weight = 1.0 }]
validation = "pile_val_text_document"
tokenizer = "20B_tokenizer.json"
[batch]
global = 1536
micro = 4
[mesh]
tensor = 1
pipeline = 1
[placement]
preset = "zero-topo"
[schedule]
pipeline = "1f1b"
recompute = "selective"
prefetch = 2
[precision]
compute = "bf16"
[optimizer]
name = "adamw"
lr = 0.97e-4
betas = [0.9, 0.95]
weight_decay = 0.01
weight_decay_on = "matrices"
clip = 1.0
schedule = { shape = "cosine", warmup = 0.01, min_lr = 0.97e-5 }
[run]
steps = 150000
seed = 1234
threads = 1
save = { every = 1000, keep = 3, folder = "checkpoints" }
machine = "frontier"
)";

/// The least that makes a job; more sections may follow.
inline constexpr std::string_view small_file = R"([model]
family = "gpt2"
layers = 2
hidden = 64
heads = 4
vocab = 211
sequence = 48
[batch]
global = 8
[run]
steps = 10
)";

inline Job parsed(std::string_view text, const std::vector<std::string>& sets = {}) {
  return parse(text, "/jobs/job.toml", sets);
}

/// The message with which a job is refused; a test failure and "" if it is not, or not as bad input.
inline std::string refusal(std::string_view text, const std::vector<std::string>& sets = {}) {
  try {
    parsed(text, sets);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused:\n" << text << (sets.empty() ? "" : "\n--set " + sets[0]);
  return "";
}

}  // namespace strata::job
