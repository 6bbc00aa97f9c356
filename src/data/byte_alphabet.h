#pragma once
// The printable characters that stand for bytes in the vocabularies of byte-level BPE (GPT-2's encoder.py): what prints in
// Latin-1 stands for itself, the other bytes for U+0100 and up, in order.

#include <optional>
#include <string>
#include <string_view>

namespace strata::data {

/// The character of a byte, as UTF-8.
std::string_view byte_character(unsigned char byte);

/// Every byte as its character.
void append_byte_characters(std::string_view bytes, std::string& out);
std::string to_byte_characters(std::string_view bytes);

/// The bytes that characters stand for; false, or nothing, if one of them stands for none. `text` is valid UTF-8.
bool append_bytes(std::string_view text, std::string& out);
std::optional<std::string> from_byte_characters(std::string_view text);

}  // namespace strata::data
