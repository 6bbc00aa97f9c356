#include "data/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "data/utf8.h"
#include "files/json.h"

namespace strata::data {

namespace {

// The token that ends a document: the first of these names that an added token has, else the first in the vocabulary.
constexpr std::string_view document_ends[] = {
    "<|endoftext|>", "<|end_of_text|>", "<|endofdoc|>", "<|end_of_document|>",
    "<|eos|>",       "<eos>",           "</s>",         "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "[EOS]",         "<EOS>",
};

// Runs of bytes that are no UTF-8 end where a whole character begins.
size_t invalid_run(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && valid_utf8_prefix(text.substr(length, 4)) == 0) ++length;
  return length;
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : name_(std::move(parts.name)),
        model_(parts.model),
        normalizers_(std::move(parts.normalizers)),
        pretokenizer_(std::move(parts.pretokenizer)) {
    any_bytes_ = parts.model.unknown < 0;
    for (const int32_t id : parts.model.bytes) any_bytes_ = any_bytes_ && id >= 0;
    exact_ = any_bytes_ && normalizers_.empty() && pretokenizer_.lossless();

    int32_t largest = -1;
    for (const BpeToken& token : parts.vocab) largest = std::max(largest, token.id);
    for (const AddedToken& token : parts.added) largest = std::max(largest, token.id);
    texts_.resize(static_cast<size_t>(largest) + 1);
    for (const BpeToken& token : parts.vocab) text_of(token.id) = from_byte_characters(token.text).value_or(token.text);
    for (const AddedToken& token : parts.added) {
      std::string& text = text_of(token.id);
      // A token that the model may give as well, for other text, has no one decoding.
      if (!text.empty() && text != token.content) exact_ = false;
      text = token.content;
      if (token.lstrip || token.rstrip) exact_ = false;
      if (!token.normalized) {
        as_written_.add(token, token.content);
      } else {
        normalised_.add(token, normalise(token.content));
      }
    }
    end_ = find_end(parts);
  }

  int64_t vocab() const override { return static_cast<int64_t>(texts_.size()); }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    if (!any_bytes_ && valid_utf8_prefix(text) != text.size())
      throw input_error("{}: this tokenizer takes valid UTF-8 only: its vocabulary does not have every byte", name_);
    split(as_written_, text, out, [&](std::string_view between) {
      if (normalizers_.empty()) {
        encode_normalised(between, out);
      } else {
        encode_normalised(normalise(between), out);
      }
    });
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab())
        throw input_error("token id {} is not of {}: its ids are 0 to {}", id, name_, vocab() - 1);
      text += texts_[static_cast<size_t>(id)];
    }
    return text;
  }

  std::optional<int32_t> end_of_document() const override { return end_; }
  bool exact() const override { return exact_; }
  bool any_bytes() const override { return any_bytes_; }
  std::string description() const override { return fmt::format("byte-level BPE, {} ids", vocab()); }

 private:
  std::string& text_of(int32_t id) { return texts_[static_cast<size_t>(id)]; }

  std::string normalise(std::string_view text) const {
    std::string now(text);
    for (const NormalForm form : normalizers_) {
      std::string next;
      next.reserve(now.size());
      normalize(form, now, next);
      now = std::move(next);
    }
    return now;
  }

  // Ids of the tokens found go to `out`; the text between them to `rest`.
  template <typename Rest>
  static void split(const AddedTokenFinder& finder, std::string_view text, std::vector<int32_t>& out, Rest rest) {
    if (finder.empty()) {
      rest(text);
      return;
    }
    std::vector<AddedTokenFinder::Part> parts;
    finder.split(text, parts);
    for (const auto& part : parts) {
      if (part.id >= 0)
        out.push_back(part.id);
      else
        rest(text.substr(part.begin, part.end - part.begin));
    }
  }

  void encode_normalised(std::string_view text, std::vector<int32_t>& out) const {
    split(normalised_, text, out, [&](std::string_view rest) {
      const auto piece = [&](std::string_view bytes) { model_.encode(bytes, out); };
      while (!rest.empty()) {
        const size_t valid = valid_utf8_prefix(rest);
        pretokenizer_.cut(rest.substr(0, valid), piece);
        rest.remove_prefix(valid);
        const size_t invalid = invalid_run(rest);
        piece(rest.substr(0, invalid));
        rest.remove_prefix(invalid);
      }
    });
  }

  static std::optional<int32_t> find_end(const BpeParts& parts) {
    for (const std::string_view name : document_ends)
      for (const AddedToken& token : parts.added)
        if (token.content == name) return token.id;
    for (const std::string_view name : document_ends)
      for (const BpeToken& token : parts.vocab)
        if (token.text == name) return token.id;
    return std::nullopt;
  }

  std::string name_;
  Bpe model_;
  std::vector<NormalForm> normalizers_;
  PreTokenizer pretokenizer_;
  AddedTokenFinder as_written_, normalised_;
  std::vector<std::string> texts_;  // of each id; empty where no token has it
  std::optional<int32_t> end_;
  bool exact_ = false, any_bytes_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace strata::data
