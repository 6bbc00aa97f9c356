// model/hf_config.h: an accepted config.json describes a model that can be counted, and one that can be written out
// reads back equal.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "model/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  model::Config config;
  model::HfExtras extras;
  try {
    config = model::from_hf_config(text, "f");
    extras = model::hf_extras(text, "f");
  } catch (const Error&) {
    return 0;
  }
  if (model::parameter_count(config) <= 0) std::abort();
  std::string written;
  try {
    written = model::to_hf_config(config, extras);
  } catch (const Error&) {
    return 0;  // a shape that transformers does not have
  }
  if (model::from_hf_config(written, "written") != config) std::abort();
  if (model::hf_extras(written, "written").eos_tokens != extras.eos_tokens) std::abort();
  return 0;
}
