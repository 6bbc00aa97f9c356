#pragma once
// Holding a tokenizer against token ids that another program gave.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace strata::data {

struct ReferenceEncoding {
  std::string text;
  std::vector<int32_t> ids;
};

/// The list in a JSON file: [{"text": "...", "ids": [0, 1]}, ...]. Throws an input error, naming file and key, for anything
/// else, an empty list included.
std::vector<ReferenceEncoding> read_encodings(const std::filesystem::path& file);

struct TokenizerMismatch {
  size_t index;                        ///< of the text in the list
  bool decoding;                       ///< the ids agree, but decoding does not give the text back
  std::vector<int32_t> expected, got;  ///< ids, where those differ
  std::string text, decoded;
};

struct TokenizerCheck {
  int64_t texts = 0, bytes = 0, tokens = 0;
  int64_t same_ids = 0;    ///< texts whose ids agree
  int64_t given_back = 0;  ///< texts that decoding gives back as they were
  int64_t normalised = 0;  ///< texts that it gives back changed, in a form that has the same ids (never if exact())
  std::vector<TokenizerMismatch> mismatches;  ///< all of them, in order

  bool passed() const { return mismatches.empty(); }
};

/// Encodes and decodes every text. A tokenizer that normalises text is let off giving it back unchanged if what it gives
/// back has the same ids.
TokenizerCheck check_tokenizer(const Tokenizer& tokenizer, const std::vector<ReferenceEncoding>& reference);

struct TokenizerSpeed {
  int64_t bytes = 0, tokens = 0;
  double seconds = 0;
};

/// Encodes `text` in documents of some kilobytes, again and again for `seconds`, on the calling thread. The first pass is
/// not counted.
TokenizerSpeed measure_tokenizer(const Tokenizer& tokenizer, std::string_view text, double seconds);

/// The texts that look like prose (nine bytes in ten are ASCII letters or spaces, none four times in a row), joined by line ends; all of them if none
/// does.
std::string prose_of(const std::vector<ReferenceEncoding>& reference);

}  // namespace strata::data
