#include "data/tokenizer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "files/json.h"

namespace strata::data {

std::vector<ReferenceEncoding> read_encodings(const std::filesystem::path& file) {
  const std::string name = file.string();
  const nlohmann::json json = files::read_json(name);
  if (!json.is_array() || json.empty())
    throw input_error("{}: a list of objects with \"text\" and \"ids\" is expected, and not an empty one", name);
  std::vector<ReferenceEncoding> reference;
  reference.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const nlohmann::json& entry = json[i];
    const auto refuse = [&](std::string_view what) { throw input_error("{}: [{}]{}", name, i, what); };
    if (!entry.is_object()) refuse(" is no object");
    const auto text = entry.find("text"), ids = entry.find("ids");
    if (text == entry.end() || !text->is_string()) refuse(".text is missing or no text");
    if (ids == entry.end() || !ids->is_array()) refuse(".ids is missing or no list");
    ReferenceEncoding encoding{text->get<std::string>(), {}};
    for (const nlohmann::json& id : *ids) {
      if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max())
        refuse(fmt::format(".ids holds {}, which is no token id", files::shown_json(id)));
      encoding.ids.push_back(id.get<int32_t>());
    }
    reference.push_back(std::move(encoding));
  }
  return reference;
}

TokenizerCheck check_tokenizer(const Tokenizer& tokenizer, const std::vector<ReferenceEncoding>& reference) {
  TokenizerCheck check;
  for (size_t i = 0; i < reference.size(); ++i) {
    const ReferenceEncoding& expected = reference[i];
    std::vector<int32_t> ids;
    tokenizer.encode(expected.text, ids);
    ++check.texts;
    check.bytes += static_cast<int64_t>(expected.text.size());
    check.tokens += static_cast<int64_t>(ids.size());
    const std::string decoded = tokenizer.decode(ids);
    if (decoded == expected.text) {
      ++check.given_back;
    } else {
      std::vector<int32_t> again;
      if (!tokenizer.exact()) tokenizer.encode(decoded, again);
      if (!tokenizer.exact() && again == ids)
        ++check.normalised;
      else if (ids == expected.ids)
        check.mismatches.push_back({i, true, {}, {}, expected.text, decoded});
    }
    if (ids == expected.ids)
      ++check.same_ids;
    else
      check.mismatches.push_back({i, false, expected.ids, ids, expected.text, decoded});
  }
  return check;
}

TokenizerSpeed measure_tokenizer(const Tokenizer& tokenizer, std::string_view text, double seconds) {
  constexpr size_t document = 16384;
  constexpr size_t least = size_t{1} << 20;
  std::string repeated(text);
  if (text.empty()) return {};
  while (repeated.size() < least) repeated += text;
  TokenizerSpeed speed;
  std::vector<int32_t> ids;
  const auto pass = [&] {
    for (size_t at = 0; at < repeated.size();) {
      size_t end = std::min(at + document, repeated.size());
      while (end < repeated.size() && (repeated[end] & '\xC0') == '\x80') ++end;  // whole characters
      ids.clear();
      tokenizer.encode(std::string_view(repeated).substr(at, end - at), ids);
      speed.tokens += static_cast<int64_t>(ids.size());
      at = end;
    }
    speed.bytes += static_cast<int64_t>(repeated.size());
  };
  pass();
  speed = {};
  const auto start = std::chrono::steady_clock::now();
  do {
    pass();
    speed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (speed.seconds < seconds);
  return speed;
}

std::string prose_of(const std::vector<ReferenceEncoding>& reference) {
  std::string prose, all;
  for (const ReferenceEncoding& encoding : reference) {
    const auto letters = std::count_if(encoding.text.begin(), encoding.text.end(), [](char c) {
      return c == ' ' || std::isalpha(static_cast<unsigned char>(c)) != 0;
    });
    const auto size = static_cast<int64_t>(encoding.text.size());
    bool drones = false;  // the same byte four times
    for (size_t i = 0; i + 4 <= encoding.text.size(); ++i)
      drones = drones || encoding.text.compare(i, 4, std::string(4, encoding.text[i])) == 0;
    if (!drones && encoding.text.find(' ') != std::string::npos && letters * 10 >= size * 9)
      (prose += encoding.text) += '\n';
    (all += encoding.text) += '\n';
  }
  return prose.empty() ? all : prose;
}

}  // namespace strata::data
