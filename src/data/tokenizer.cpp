#include "data/tokenizer.h"

#include "core/error.h"
#include "data/sentencepiece.h"
#include "data/tokenizer_json.h"
#include "files/atomic_file.h"

namespace strata::data {

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab() const override { return 257; }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    out.insert(out.end(), bytes, bytes + text.size());
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

// GPT-2's two files go by vocab.json and merges.txt, or, as Megatron has them, NAME-vocab.json and NAME-merges.txt.
constexpr std::string_view vocab_name = "vocab.json", merges_name = "merges.txt";

struct Pair {
  std::filesystem::path vocab, merges;
};

// Both files, given one of them; any other name is taken for a vocabulary's.
Pair pair_of(const std::filesystem::path& given) {
  const std::string name = given.filename().string();
  const auto sibling = [&](std::string_view own, std::string_view other) {
    const std::string front = name.ends_with(own) ? name.substr(0, name.size() - own.size()) : "";
    return given.parent_path() / (front + std::string(other));
  };
  if (name.ends_with(merges_name)) return {sibling(merges_name, vocab_name), given};
  return {given, sibling(vocab_name, merges_name)};
}

std::unique_ptr<Tokenizer> load_pair(const std::filesystem::path& given) {
  const Pair pair = pair_of(given);
  std::error_code error;
  for (const std::filesystem::path& path : {pair.vocab, pair.merges})
    if (!std::filesystem::exists(path, error))
      throw input_error("{}: a BPE vocabulary comes as {} and {}, and {} is not there", given.string(), vocab_name,
                        merges_name, path.string());
  return read_vocab_and_merges(files::read_text(pair.vocab), pair.vocab, files::read_text(pair.merges), pair.merges);
}

// The file that stands for the tokenizer in a folder; empty if there is none.
std::filesystem::path find_in_folder(const std::filesystem::path& folder) {
  std::error_code error;
  for (const std::string_view name :
       {std::string_view("tokenizer.json"), vocab_name, merges_name, std::string_view("tokenizer.model")})
    if (std::filesystem::exists(folder / name, error)) return folder / name;
  return {};
}

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (path == bytes_name) return byte_tokenizer();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    const std::filesystem::path file = find_in_folder(path);
    if (!file.empty()) return load_tokenizer(file);
    throw input_error("{}: no tokenizer in this folder (looked for tokenizer.json, {} with {}, tokenizer.model)",
                      path.string(), vocab_name, merges_name);
  }
  const std::string name = path.filename().string();
  if (name.ends_with(merges_name) || name.ends_with(vocab_name)) return load_pair(path);
  const std::string content = files::read_text(path);
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (content.starts_with("#version"))
    throw input_error("{}: the merges of a BPE tokenizer; the file's name must end in {}, with {} beside it",
                      path.string(), merges_name, vocab_name);
  if (first != std::string::npos && content[first] == '{')
    return looks_like_vocab_json(content) ? load_pair(path) : read_tokenizer_json(content, path);
  if (name.ends_with(".json")) return read_tokenizer_json(content, path);  // which says what is wrong with it
  return load_sentencepiece(content, path);
}

std::vector<TokenizerFile> tokenizer_files(const std::filesystem::path& path) {
  std::error_code error;
  if (path == bytes_name) return {};
  if (std::filesystem::is_directory(path, error)) {
    const std::filesystem::path file = find_in_folder(path);
    return file.empty() ? std::vector<TokenizerFile>() : tokenizer_files(file);
  }
  if (!std::filesystem::is_regular_file(path, error)) return {};
  const std::string name = path.filename().string();
  if (name.ends_with(vocab_name) || name.ends_with(merges_name)) {
    const Pair pair = pair_of(path);
    if (std::filesystem::exists(pair.vocab, error) && std::filesystem::exists(pair.merges, error))
      return {{pair.vocab, std::string(vocab_name)}, {pair.merges, std::string(merges_name)}};
  }
  return {{path, "tokenizer" + path.extension().string()}};
}

}  // namespace strata::data
