#pragma once
// The files that byte-level BPE tokenizers come in: tokenizer.json of Hugging Face's tokenizers, and GPT-2's vocab.json with
// merges.txt.

#include <filesystem>
#include <memory>
#include <string_view>

#include "data/tokenizer.h"

namespace strata::data {

/// A tokenizer from the text of a tokenizer.json; `file` is for messages. What is read: model (BPE over bytes), normalizer
/// (NFC, NFD, NFKC, NFKD and sequences of them), pre_tokenizer (ByteLevel, Split, Digits, Punctuation and sequences of
/// them), added_tokens. What only matters beyond the ids of a text is left out: post_processor, decoder, truncation,
/// padding. Throws input errors, naming file and key, for everything else that would change ids, and where vocabulary,
/// merges and added tokens do not fit together.
std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text, const std::filesystem::path& file);

/// A tokenizer from the text of GPT-2's two files: its pattern, no normalising, no added tokens.
std::unique_ptr<Tokenizer> read_vocab_and_merges(std::string_view vocab, const std::filesystem::path& vocab_file,
                                                 std::string_view merges, const std::filesystem::path& merges_file);

/// Whether JSON text looks like a vocab.json (an object of numbers) rather than a tokenizer.json.
bool looks_like_vocab_json(std::string_view text);

}  // namespace strata::data
