#pragma once
// The part of a text that a reader looks at: it grows at the end and is dropped from the front, so memory stays bounded.

#include <cstdint>
#include <memory>
#include <string>

#include "data/byte_source.h"

namespace strata::data {

struct TextWindow {
  /// From byte `offset` of the text on, `block_bytes` at a time. At its beginning throws an input error for what is no
  /// plain text, and passes over a byte order mark.
  TextWindow(std::unique_ptr<ByteSource> from, int64_t offset, size_t block_bytes);

  /// Drops what is before `begin` and reads on behind the rest; false at the end of the text.
  bool fill();
  /// Where unread text starts, in the whole text.
  int64_t place() const { return offset + static_cast<int64_t>(begin); }

  std::unique_ptr<ByteSource> source;
  std::string buffer{};
  size_t begin = 0;     ///< unread text starts here
  size_t searched = 0;  ///< what a reader looks for does not start before this
  int64_t offset = 0;   ///< of buffer[0] in the text

 private:
  size_t block_bytes_;
  bool at_end_ = false;
};

}  // namespace strata::data
