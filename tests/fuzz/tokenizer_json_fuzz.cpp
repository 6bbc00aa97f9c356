// data/tokenizer_json.h: whatever an accepted file says, its tokenizer takes any bytes where it says so; its ids are of its vocabulary and can be decoded, back to the text where it is exact. The text is what follows the
// file's first NUL byte.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view file = input.substr(0, input.find('\0'));
  const std::string_view text = file.size() < input.size() ? input.substr(file.size() + 1) : "it's <x> 12\n\xC3\xA9";
  std::unique_ptr<data::Tokenizer> tokenizer;
  try {
    tokenizer = data::read_tokenizer_json(file, "f");
  } catch (const Error& error) {
    if (error.fault() != Fault::input) std::abort();
    return 0;
  }
  if (tokenizer->exact() && !tokenizer->any_bytes()) std::abort();
  std::vector<int32_t> ids;
  try {
    tokenizer->encode(text, ids);
  } catch (const Error& error) {
    // Bytes that the vocabulary lacks, or a pattern that takes too long.
    if (error.fault() == Fault::input && tokenizer->any_bytes()) std::abort();
    return 0;
  }
  for (const int32_t id : ids)
    if (id < 0 || id >= tokenizer->vocab()) std::abort();
  const std::string decoded = tokenizer->decode(ids);
  if (tokenizer->exact() && decoded != text) std::abort();
  return 0;
}
