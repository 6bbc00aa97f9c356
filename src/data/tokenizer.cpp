#include "data/tokenizer.h"

#include "core/error.h"
#include "data/sentencepiece.h"
#include "files/atomic_file.h"

namespace strata::data {

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab() const override { return 257; }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    out.reserve(out.size() + text.size());
    for (const char c : text) out.push_back(static_cast<uint8_t>(c));
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      if (id < 0 || id > end)
        throw input_error("token id {} is not of the byte tokenizer: its ids are 0 to {}", id, end);
      if (id < end) text.push_back(static_cast<char>(id));
    }
    return text;
  }

  std::optional<int32_t> end_of_document() const override { return end; }
  bool exact() const override { return true; }
  std::string description() const override { return "bytes, 257 ids"; }

 private:
  static constexpr int32_t end = 256;
};

[[noreturn]] void refuse_bpe(const std::filesystem::path& path) {
  throw input_error(
      "{}: byte-level BPE tokenizers (vocab.json with merges.txt, tokenizer.json) cannot be read yet; give a "
      "SentencePiece "
      "model file or \"bytes\"",
      path.string());
}

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (path == bytes_name) return byte_tokenizer();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    if (std::filesystem::exists(path / "tokenizer.model", error)) return load_tokenizer(path / "tokenizer.model");
    for (const char* name : {"tokenizer.json", "vocab.json"})
      if (std::filesystem::exists(path / name, error)) refuse_bpe(path / name);
    throw input_error("{}: no tokenizer in this folder (looked for tokenizer.model)", path.string());
  }
  const std::string content = files::read_text(path);
  const std::string name = path.filename().string();
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (name == "merges.txt" || content.starts_with("#version") || (first != std::string::npos && content[first] == '{'))
    refuse_bpe(path);
  return load_sentencepiece(content, path);
}

}  // namespace strata::data
