#pragma once
// Text to token ids and back.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// Immutable once made; every call may come from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids are 0 .. vocab()-1, the end-of-document id included.
  virtual int64_t vocab() const = 0;

  /// Appends the ids of `text` to `out`; adds no special token. None is read out of the text either, except by BPE
  /// tokenizers with added tokens of their own ("<|endoftext|>"): those stand for themselves wherever the text has them,
  /// as in the library that they come from.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;

  /// The text of the ids. Special tokens that are never read out of a text (end of document of raw bytes and of
  /// SentencePiece) have none, nor have ids that no token has. Where `exact()`, decode(encode(text)) == text,
  /// and decoding parts one after another gives the parts of the text (which may cut a character). Throws an input
  /// error for an id that is not of this vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  /// The id that ends a document, where the tokenizer has one.
  virtual std::optional<int32_t> end_of_document() const = 0;

  /// Whether every sequence of bytes, valid UTF-8 or not, comes back unchanged.
  virtual bool exact() const = 0;

  /// Whether encode takes any bytes. If not, it throws an input error unless the text is valid UTF-8 (and, of a BPE
  /// vocabulary that lacks some bytes, for these).
  virtual bool any_bytes() const { return exact(); }

  /// For people: "SentencePiece BPE, 4096 ids".
  virtual std::string description() const = 0;
};

/// The word for raw bytes wherever a tokenizer file is named. A file of that name is meant by "./bytes".
inline constexpr std::string_view bytes_name = "bytes";

/// Ids 0..255 are the bytes, 256 ends a document. Exact.
std::unique_ptr<Tokenizer> byte_tokenizer();

/// "bytes"; a tokenizer.json; GPT-2's vocab.json or merges.txt, the other beside it (also NAME-vocab.json and
/// NAME-merges.txt); a SentencePiece model file; or a folder with tokenizer.json, those two, or tokenizer.model, the first
/// of them that it holds. Anything else is an input error that says what the file is, as far as it can be told.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

struct TokenizerFile {
  std::filesystem::path path;
  std::string name;  ///< under which load_tokenizer finds it in a folder
};

/// The files that load_tokenizer would read for `path`, for taking the tokenizer along; none for "bytes", nor where there is
/// nothing. Looks at names alone.
std::vector<TokenizerFile> tokenizer_files(const std::filesystem::path& path);

}  // namespace strata::data
