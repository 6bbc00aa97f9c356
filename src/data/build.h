#pragma once
// Text files to a tokenised dataset on disk: many threads, bounded memory, and a build that was killed goes on where it
// was.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "data/inputs.h"
#include "data/tokenizer.h"

namespace strata::data {

struct BuildProgress {
  int64_t stored_bytes = 0, stored_total = 0;  ///< of the input files, as they lie on disk
  int64_t text_bytes = 0, tokens = 0;
};

struct BuildOptions {
  std::vector<std::filesystem::path> texts;  ///< files and folders, see find_inputs
  std::optional<Format> format;              ///< of all of them; none: by name
  std::filesystem::path prefix;              ///< PREFIX.bin and PREFIX.idx; PREFIX_validation.bin and .idx
  /// A document longer than read.piece_bytes becomes several sequences; the validation part is chosen by them.
  ReadOptions read;
  double validation = 0;  ///< share of the pieces, 0 to below 1: every 1/share-th, beginning with the first
  /// What the tokenizer is made of (tokenizer_identity), so that a build is not gone on with by another.
  std::string tokenizer;
  int workers = 1;                          ///< threads that tokenise; the result is the same with any number
  int64_t save_every = int64_t{64} << 20;   ///< bytes of text after which a killed build need not be done again
  size_t batch_bytes = size_t{1} << 18;     ///< of text, which a thread takes at a time; changes nothing that comes out
  bool restart = false;                     ///< begin anew whatever an unfinished build has left
  const std::atomic<bool>* stop = nullptr;  ///< set by a signal handler: save, and throw an error of kind interrupted
  std::function<void(const BuildProgress&)> progress = nullptr;  ///< called now and then, from the calling thread
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
  int64_t input_files = 0, left_out_files = 0, stored_bytes = 0;
  int64_t earlier_tokens = 0;  ///< of all, those that an earlier call had made
  DType dtype = DType::u16;
};

/// One dataset being built. While it lives, PREFIX.building is locked and holds what is done so far; nothing has the
/// dataset's name before all is done and on disk.
class DatasetBuild {
 public:
  /// Finds the inputs, takes the lock and looks at what an unfinished build has left. Throws input errors: no text, a
  /// share that is none, another build under way, and an unfinished build of other options, another tokenizer or other
  /// inputs (up to where it had come; what it had not begun to read may change), unless told to restart.
  explicit DatasetBuild(BuildOptions options);
  DatasetBuild(const DatasetBuild&) = delete;
  DatasetBuild& operator=(const DatasetBuild&) = delete;
  /// Unfinished: the folder stays if there is something in it to go on from, else it goes.
  ~DatasetBuild();

  const Inputs& inputs() const;
  /// Tokens made by an earlier call that this one goes on from.
  int64_t earlier_tokens() const;

  /// The model file that an unfinished build was given by `keep_tokenizer`.
  std::optional<std::string> kept_tokenizer() const;
  /// Becomes PREFIX.model with the dataset.
  void keep_tokenizer(std::string_view model);

  /// Each document is its text's tokens and, where the tokenizer has one, the end-of-document id. Where a long document
  /// loses a piece to the other part, what is left of it on either side are documents of their own. Input errors: text
  /// that is not UTF-8 for a tokenizer that needs it, whatever is wrong with a file, nothing left for either part (file
  /// and place named). Which error is thrown does not depend on the number of workers.
  BuildReport run(const Tokenizer& tokenizer);

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// What a tokenizer is known by: digests of the files that load_tokenizer may read at this path, or the name for bytes.
std::string tokenizer_identity(const std::filesystem::path& path);

/// -sum p ln p of the frequencies.
double unigram_entropy(const std::vector<int64_t>& counts);

}  // namespace strata::data
