#pragma once
// UTF-8 as text files hold it.

#include <cstddef>
#include <string_view>

namespace strata::data {

/// Bytes of the longest prefix of `text` that is whole, valid UTF-8 (shortest forms only, no surrogates: RFC 3629).
size_t valid_utf8_prefix(std::string_view text);

}  // namespace strata::data
