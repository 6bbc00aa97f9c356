#pragma once
// Short pieces of text seen before, with their ids. A thread has one for each vocabulary that it lately used.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace strata::data {

/// A table without collision lists: a newer word takes the place of an older one. An entry is one cache line.
class WordCache {
 public:
  static constexpr size_t longest_piece = 23;
  static constexpr size_t most_ids = 9;

  struct Key {
    std::array<uint64_t, 3> words{};  // the bytes, zeros behind them, the length last
    uint64_t hash() const {
      uint64_t h = words[0] * 0x9E3779B97F4A7C15u;
      h = (h ^ h >> 32 ^ words[1]) * 0xD6E8FEB86659FD93u;
      h = (h ^ h >> 32 ^ words[2]) * 0x9E3779B97F4A7C15u;
      return h ^ h >> 29;
    }
    bool operator==(const Key&) const = default;
  };
  /// 1 <= piece.size() <= longest_piece.
  static Key key_of(std::string_view piece) {
    Key key;
    std::array<char, 24> bytes{};
    std::memcpy(bytes.data(), piece.data(), piece.size());
    bytes[longest_piece] = static_cast<char>(piece.size());
    std::memcpy(key.words.data(), bytes.data(), bytes.size());
    return key;
  }

  explicit WordCache(uint64_t generation) : generation_(generation), entries_(size) {}
  uint64_t generation() const { return generation_; }

  bool append(const Key& key, std::vector<int32_t>& out) const {
    const Entry& entry = entries_[key.hash() & (size - 1)];
    if (!(entry.key == key)) return false;
    out.insert(out.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return true;
  }
  void keep(const Key& key, std::span<const int32_t> ids) {
    if (ids.size() > most_ids) return;
    Entry& entry = entries_[key.hash() & (size - 1)];
    entry.key = key;
    entry.count = static_cast<int32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

  /// The calling thread's cache for a vocabulary; made, or taken from the vocabulary unused for longest, if it has none.
  static WordCache& of_thread(uint64_t generation);

 private:
  static constexpr size_t size = size_t{1} << 15;  // 2 MiB
  struct alignas(64) Entry {
    Key key;  // of length 0: free
    int32_t count = 0;
    std::array<int32_t, most_ids> ids{};
  };
  uint64_t generation_;
  std::vector<Entry> entries_;
};

}  // namespace strata::data
