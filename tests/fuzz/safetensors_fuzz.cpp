// files/safetensors.h: the tensors of an accepted file lie in it, cover it, and can be read; indices name plain files.
// The first byte chooses: 'i' for an index, else a file whose header's length is set right half of the time.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "files/safetensors.h"

namespace {

using namespace strata;

void read_index(std::string_view text) {
  for (const auto& [name, file] : files::parse_safetensors_index(text, "f"))
    if (file.empty() || file.find('/') != std::string::npos) std::abort();
}

void read_file(std::span<const std::byte> bytes) {
  int64_t covered = 0;
  const std::byte* at = nullptr;
  for (const files::StoredTensor& tensor : files::parse_safetensors(bytes, "f")) {
    if (!tensor.bytes.empty()) {
      if (tensor.bytes.data() < bytes.data() || tensor.bytes.data() + tensor.bytes.size() > bytes.data() + bytes.size())
        std::abort();
      if (at != nullptr && tensor.bytes.data() != at) std::abort();
      at = tensor.bytes.data() + tensor.bytes.size();
    }
    covered += static_cast<int64_t>(tensor.bytes.size());
    if (tensor.dtype && tensor.elements() * size_of(*tensor.dtype) != static_cast<int64_t>(tensor.bytes.size()))
      std::abort();
    try {
      std::vector<float> values(tensor.bytes.empty() ? 0 : static_cast<size_t>(tensor.elements()));
      tensor.to_float(0, values);
      (void)tensor.i32();
    } catch (const Error&) {
    }
  }
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  if (static_cast<uint64_t>(covered) + 8 + header != bytes.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0 && text.size() >= 8) {
    // Help the fuzzer past the length: the header ends at the last brace.
    const uint64_t header = text.find_last_of('}') == std::string::npos ? 0 : text.find_last_of('}') + 1;
    const uint64_t length = header > 8 ? header - 8 : 0;
    std::memcpy(text.data(), &length, 8);
  }
  try {
    if (data[0] == 'i')
      read_index(std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
    else
      read_file(std::as_bytes(std::span(text)));
  } catch (const strata::Error&) {
  }
  return 0;
}
