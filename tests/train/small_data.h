#pragma once
// A small dataset to learn from.

#include <filesystem>
#include <vector>

#include "core/random.h"
#include "data/megatron.h"
#include "support/scratch.h"

namespace strata::train {

/// Ids that a small model can learn: each mostly follows from the one before.
inline void write_dataset(const std::filesystem::path& prefix, int64_t tokens, int64_t vocab, uint64_t seed = 1) {
  data::MegatronWriter writer(prefix, data::token_dtype(vocab));
  std::vector<int32_t> ids;
  uint64_t id = 1;
  for (int64_t i = 0; i < tokens; ++i) {
    const Random4 r = philox(seed, static_cast<uint64_t>(i));
    id = r[0] % 10 == 0 ? r[1] % static_cast<uint64_t>(vocab) : (id * 7 + 3) % static_cast<uint64_t>(vocab);
    ids.push_back(static_cast<int32_t>(id));
  }
  writer.add(ids);
  writer.end_document();
  writer.finish();
  writer.commit();
}

}  // namespace strata::train
