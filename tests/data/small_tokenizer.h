#pragma once
// Small byte-level BPE tokenizers for tests: the 256 bytes, and what the given merges make of them.

#include <cstdint>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer_json.h"
#include "data/unicode.h"

namespace strata::data {

using Merges = std::vector<std::pair<std::string, std::string>>;  // as text; spaces and all

inline nlohmann::json small_model(const Merges& merges) {
  nlohmann::json vocab = nlohmann::json::object(), list = nlohmann::json::array();
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) vocab[std::string(byte_character(static_cast<unsigned char>(byte)))] = id++;
  for (const auto& [left, right] : merges) {
    const std::string a = to_byte_characters(left), b = to_byte_characters(right);
    if (!vocab.contains(a + b)) vocab[a + b] = id++;
    list.push_back({a, b});
  }
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}};
}

inline nlohmann::json byte_level(bool use_regex = true, bool add_prefix_space = false) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

inline nlohmann::json split(const std::string& regex, const std::string& behavior = "Isolated", bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", invert}};
}

inline nlohmann::json sequence(std::vector<nlohmann::json> steps) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

inline nlohmann::json added(int id, const std::string& content, nlohmann::json changes = nlohmann::json::object()) {
  nlohmann::json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                          {"rstrip", false}, {"normalized", false}, {"special", true}};
  token.update(changes);
  return token;
}

/// A whole tokenizer.json of a model without merges; change what a test is about.
inline nlohmann::json small_tokenizer(const Merges& merges = {}) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level()},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", small_model(merges)}};
}

inline std::unique_ptr<Tokenizer> load(const nlohmann::json& json) {
  return read_tokenizer_json(json.dump(), "t.json");
}

inline std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

/// The text of each id by itself.
inline std::vector<std::string> tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> all;
  for (const int32_t id : encode(tokenizer, text)) all.push_back(tokenizer.decode(std::vector<int32_t>{id}));
  return all;
}

/// Text of all kinds of characters, and, if `valid` is false, bytes that are none. A pure function of `seed`.
inline std::string odd_text(uint64_t seed, bool valid) {
  static constexpr char32_t chosen[] = {
      0x85,  0xA0,   0x180E,  0x200B,  0x2028, 0x3000, 0x17F,  0x212A, 0xDF,   0x300,  0x301, 0x345,   0x323,
      0x897, 0x1C89, 0xA7CB,  0xAC00,  0x1100, 0x1161, 0x11A8, 0xFB01, 0xFB06, 0x2460, 0xB2,  0xBC,    0x390,
      0xC5,  0x212B, 0x10D40, 0x2EBF0, 0xFFFD, 0xFEFF, 0x200D, 0x5D0,  0x661,  0x915,  0x94D, 0x1F468, 0x10FFFF};
  std::string text;
  const uint32_t length = philox(seed, ~uint64_t{0})[0] % 60;
  for (uint32_t i = 0; i < length; ++i) {
    const Random4 r = philox(seed, i);
    char32_t code = 0;
    switch (r[0] % (valid ? 11 : 13)) {
      case 0: code = ' '; break;
      case 1: code = static_cast<unsigned char>("\n\r\t \v\f"[r[1] % 6]); break;
      case 2: code = '\''; break;
      case 3: code = static_cast<unsigned char>("stremdlvSTREMDLV"[r[1] % 16]); break;
      case 4: code = '0' + r[1] % 10; break;
      case 5: code = 0x20 + r[1] % 95; break;
      case 6: code = chosen[r[1] % std::size(chosen)]; break;
      case 7: code = r[1] % 0x800; break;
      case 8: code = r[1] % 0x10000; break;
      case 9: code = r[1] % 0x20000; break;
      case 10: code = 'a' + r[1] % 26; break;
      default: text += static_cast<char>(r[1] % 2 == 0 ? r[2] : 0x80 | r[2]); continue;
    }
    if (code >= 0xD800 && code < 0xE000) code = 'x';
    append_utf8(code, text);
  }
  return text;
}

}  // namespace strata::data
