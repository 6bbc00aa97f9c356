#pragma once
// SentencePiece models: reading them, and training one whose decoding gives the exact text back.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "data/inputs.h"
#include "data/tokenizer.h"

namespace strata::data {

/// A tokenizer from the bytes of a model file; `name` is for messages.
///
/// A model that neither normalises text nor adds or removes spaces, and that falls back to bytes (as
/// train_sentencepiece makes them), is exact: whatever no piece covers, and the sign U+2581 that SentencePiece keeps
/// for the space, goes through as byte ids. Every other model encodes and decodes as SentencePiece itself does.
std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view model, const std::filesystem::path& name);

struct SentencePieceTraining {
  int vocab = 4096;               ///< ids in all: <unk>, end of document, 256 bytes, then pieces
  int64_t sample_bytes = 0;       ///< about how much text to learn from; 0: 512 bytes for each id of the vocabulary
  uint64_t seed = 0;              ///< which lines the sample takes
  std::string json_key = "text";  ///< of JSON lines: where the text is
};

/// Learns a byte-pair vocabulary from text files (find_inputs) and returns the bytes of the model file. The same files and
/// options give the same bytes. Holds the sample and no more of the text in memory. Pieces do not cross lines or words, and
/// digits stand alone. Throws an input error where the text cannot fill the vocabulary, saying how large it may be.
std::string train_sentencepiece(std::span<const Input> texts, const SentencePieceTraining& training);
std::string train_sentencepiece(std::span<const std::filesystem::path> texts, const SentencePieceTraining& training);

}  // namespace strata::data
