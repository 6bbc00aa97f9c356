#pragma once
// A vocabulary and its merges as files spell them, checked against each other.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe.h"
#include "data/bpe_tokenizer.h"

namespace strata::data {

/// Token to id. Every message opens with `where`, "tokenizer.json: model.vocab" say.
class BpeVocabulary {
 public:
  BpeVocabulary(std::string where, size_t tokens);

  /// Throws an input error for an id that is out of range or taken.
  void add(std::string token, int64_t id);
  /// The token's id, or -1.
  int32_t id_of(std::string_view token) const;
  const std::vector<BpeToken>& tokens() const { return tokens_; }
  std::vector<BpeToken> take() { return std::move(tokens_); }
  const std::string& where() const { return where_; }

  /// Ids are below this: what is past it is a damaged file, not a vocabulary.
  static constexpr int64_t most_ids = int64_t{1} << 22;

 private:
  std::string where_;
  // Open addressing, a power of two of them: with hundreds of thousands of merges to look up, a table of nodes is slow.
  struct Slot {
    uint32_t hash = 0;
    int32_t token = -1;  // in tokens_; -1: free
  };
  const Slot& slot_of(std::string_view token, uint32_t hash) const;
  std::vector<BpeToken> tokens_;
  std::vector<Slot> slots_;
  std::vector<int32_t> token_of_id_;
};

struct WrittenMerge {
  std::string_view left, right;
};

/// The model of a vocabulary and merges, best first. `merge_place(i)` says where the i-th merge stands, for messages.
/// Throws an input error for a merge of or into something that is no token, and for a vocabulary that lacks bytes that
/// occur in text, unless it has the token `unknown` ("" for none) for them.
Bpe::Model make_model(const BpeVocabulary& vocabulary, const std::vector<WrittenMerge>& merges,
                      const std::function<std::string(size_t)>& merge_place, const std::string& unknown);

}  // namespace strata::data
