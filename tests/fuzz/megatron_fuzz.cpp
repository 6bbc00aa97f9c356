// Any bytes as PREFIX.idx: either a sound index, all of which can be asked for, or an input error.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "data/megatron.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first four bytes say how long PREFIX.bin is.
  if (size < 4) return 0;
  uint32_t bin_bytes = 0;
  std::memcpy(&bin_bytes, data, sizeof bin_bytes);
  try {
    const strata::data::MegatronIndex index({std::as_bytes(std::span(data + 4, size - 4)), "fuzz.idx"}, bin_bytes,
                                            "fuzz");
    int64_t tokens = 0;
    for (int64_t i = 0; i < index.sequences(); ++i) {
      STRATA_CHECK(index.sequence_begin(i) == tokens);
      tokens += index.sequence_length(i);
    }
    STRATA_CHECK(tokens == index.tokens() && index.sequence_begin(index.sequences()) == tokens);
    int64_t begin = 0;
    for (int64_t i = 0; i <= index.documents(); ++i) {
      STRATA_CHECK(index.document_begin(i) >= begin);
      begin = index.document_begin(i);
    }
    STRATA_CHECK(begin == tokens);
    std::vector<int32_t> starts(static_cast<size_t>(std::min<int64_t>(tokens, 100)));
    index.document_starts(0, starts);
    index.document_starts(tokens - static_cast<int64_t>(starts.size()), starts);
  } catch (const strata::Error&) {
  }
  return 0;
}
