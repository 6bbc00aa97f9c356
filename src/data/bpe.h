#pragma once
// Byte-pair encoding of bytes: a piece starts as its bytes' symbols, and the neighbours with the best merge join until
// there is none (Sennrich et al. 2016, section 3.2; over bytes as in GPT-2).

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// Immutable once made; may be used from several threads.
class Bpe {
 public:
  struct Merge {
    int32_t left, right, result;
  };
  struct Word {
    std::string bytes;
    int32_t id;
  };
  struct Model {
    std::string name;                  ///< for messages
    std::array<int32_t, 256> bytes{};  ///< id of each byte's symbol, -1 if it has none
    std::vector<Merge> merges;         ///< best first; of equal pairs the last one counts
    std::vector<Word> whole_words;     ///< pieces that are a token as they are, whatever the merges say
    int32_t unknown = -1;              ///< id for bytes without a symbol, -1 if there is none
    bool fuse_unknown = false;         ///< neighbours of those make one id
  };

  explicit Bpe(const Model& model);

  /// Appends the ids of one piece. Throws an input error for a byte that has no symbol where there is no unknown id.
  void encode(std::string_view piece, std::vector<int32_t>& out) const;

 private:
  struct Found {
    uint32_t rank = none;
    int32_t result = -1;
  };
  static constexpr uint32_t none = UINT32_MAX;
  struct Slot {
    uint64_t pair = UINT64_MAX;
    Found found;
  };

  void encode_afresh(std::string_view piece, std::vector<int32_t>& out) const;
  void symbols(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_short(std::vector<int32_t>& ids) const;
  void merge_long(std::vector<int32_t>& ids) const;
  Found find(int32_t left, int32_t right) const;
  int32_t whole_word(std::string_view piece) const;

  std::array<int32_t, 256> bytes_;
  std::vector<Slot> slots_;  // a power of two of them, open addressing
  uint64_t slot_mask_ = 0;
  struct WordSlot {
    uint32_t begin = 0, length = 0;  // in word_bytes_; length 0: free
    int32_t id = -1;
  };
  std::vector<WordSlot> word_slots_;
  std::string word_bytes_;
  std::string name_;
  int32_t unknown_;
  bool fuse_unknown_;
  uint64_t generation_;  // tells this vocabulary's words apart in the threads' caches
};

}  // namespace strata::data
