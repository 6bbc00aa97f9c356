#pragma once
// Text files to a tokenised dataset on disk.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "data/text.h"
#include "data/tokenizer.h"

namespace strata::data {

struct BuildOptions {
  std::vector<std::filesystem::path> texts;
  std::filesystem::path prefix;  ///< PREFIX.bin and PREFIX.idx; PREFIX_validation.bin and .idx
  DocumentRule rule = DocumentRule::form_feed;
  int64_t piece_bytes = 16384;  ///< a longer document becomes several sequences; the validation part is chosen by them
  double validation = 0;        ///< share of the pieces, 0 to below 1: every 1/share-th, beginning with the first
  std::string tokenizer_model;  ///< if not empty, written to PREFIX.model with the dataset
  const std::atomic<bool>* stop = nullptr;  ///< set by a signal handler: give up and leave nothing behind
};

struct BuiltPart {
  std::filesystem::path prefix;
  int64_t documents = 0, sequences = 0, tokens = 0, bytes = 0;  ///< bytes: of text, without what separates documents
  double entropy = 0;  ///< of single tokens, in nats: what a model that knows only their frequencies pays a token
};

struct BuildReport {
  BuiltPart train;
  std::optional<BuiltPart> validation;
  int64_t empty_documents = 0;
  DType dtype = DType::u16;
};

/// Each document is its text's tokens and, where the tokenizer has one, the end-of-document id. Where a long document
/// loses a piece to the other part, what is left of it on either side are documents of their own. Memory is bounded
/// whatever the size of the text. Input errors: no text, text that is not UTF-8 for a tokenizer that needs it (file and
/// byte named), nothing left for either part. Whatever fails, no file of this name is left half made.
BuildReport build_dataset(const Tokenizer& tokenizer, const BuildOptions& options);

/// -sum p ln p of the frequencies.
double unigram_entropy(const std::vector<int64_t>& counts);

}  // namespace strata::data
