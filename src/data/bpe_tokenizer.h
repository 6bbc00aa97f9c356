#pragma once
// Byte-level BPE tokenizers, as Hugging Face's tokenizers encodes with them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/pretokenizer.h"
#include "data/tokenizer.h"
#include "data/unicode.h"

namespace strata::data {

/// A token of the model's vocabulary. `text` is what the file says: characters that stand for bytes.
struct BpeToken {
  std::string text;
  int32_t id;
};

struct BpeParts {
  std::string name;  ///< for messages
  std::vector<BpeToken> vocab;
  Bpe::Model model;
  std::vector<NormalForm> normalizers;  ///< one after another
  PreTokenizer pretokenizer;
  std::vector<AddedToken> added;
};

/// Text is encoded so: tokens that are added and not normalised are read out of it; what lies between them is normalised,
/// and the other added tokens are read out; the rest is cut into pieces, and each piece encoded. Bytes that are no UTF-8
/// are a piece by themselves, a run of them one piece, and what lies on either side is cut as a text of its own.
///
/// Throws input errors where vocabulary, merges and added tokens do not fit together.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace strata::data
