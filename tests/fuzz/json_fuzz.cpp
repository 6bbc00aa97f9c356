// files/json.h: what is accepted, the library accepts too, and it reads back the same from its own text.

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "files/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nlohmann::json json;
  try {
    json = strata::files::parse_json(text, "f");
  } catch (const strata::Error& error) {
    if (std::string_view(error.what()).size() > 1000) std::abort();
    return 0;
  }
  if (nlohmann::json::parse(text) != json) std::abort();
  if (strata::files::parse_json(json.dump(), "f") != json) std::abort();
  (void)strata::files::shown_json(json);
  (void)strata::files::shown(text);
  return 0;
}
