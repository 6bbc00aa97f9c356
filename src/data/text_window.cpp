#include "data/text_window.h"

#include <span>
#include <string_view>
#include <utility>

namespace strata::data {

namespace {
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
/// Enough to tell what is no text.
constexpr size_t first_bytes = 300;
}  // namespace

TextWindow::TextWindow(std::unique_ptr<ByteSource> from, int64_t at, size_t block_bytes)
    : source(std::move(from)), offset(at), block_bytes_(block_bytes) {
  if (at > 0) {
    source->skip(at);
    return;
  }
  while (buffer.size() < first_bytes && fill()) {
  }
  refuse_foreign(source->path(), buffer);
  if (buffer.starts_with(byte_order_mark)) begin = searched = byte_order_mark.size();
}

bool TextWindow::fill() {
  if (at_end_) return false;
  buffer.erase(0, begin);
  offset += static_cast<int64_t>(begin);
  searched -= begin;
  begin = 0;
  const size_t held = buffer.size();
  buffer.resize(held + block_bytes_);
  const size_t got = source->read(std::span(buffer).subspan(held));
  buffer.resize(held + got);
  at_end_ = got < block_bytes_;
  return got > 0;
}

}  // namespace strata::data
