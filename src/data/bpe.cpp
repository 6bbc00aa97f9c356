#include "data/bpe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <list>
#include <queue>

#include "core/error.h"
#include "data/word_cache.h"

namespace strata::data {

WordCache& WordCache::of_thread(uint64_t generation) {
  constexpr size_t most = 4;
  thread_local std::list<WordCache> caches;  // the one used last in front
  if (caches.empty() || caches.front().generation() != generation) {
    const auto at =
        std::find_if(caches.begin(), caches.end(), [&](const WordCache& c) { return c.generation() == generation; });
    if (at != caches.end()) {
      caches.splice(caches.begin(), caches, at);
    } else {
      if (caches.size() == most) caches.pop_back();
      caches.emplace_front(generation);
    }
  }
  return caches.front();
}

namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ key >> 32;
}

uint64_t new_generation() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// Up to this many symbols, looking at all of them for each merge is quicker than a heap.
constexpr size_t short_piece = 48;

}  // namespace

Bpe::Bpe(const Model& model)
    : bytes_(model.bytes),
      name_(model.name),
      unknown_(model.unknown),
      fuse_unknown_(model.fuse_unknown),
      generation_(new_generation()) {
  slots_.resize(std::bit_ceil(model.merges.size() * 3 / 2 + 2));
  slot_mask_ = slots_.size() - 1;
  for (size_t rank = 0; rank < model.merges.size(); ++rank) {
    const Merge& merge = model.merges[rank];
    const uint64_t pair = pair_key(merge.left, merge.right);
    uint64_t at = mix(pair) & slot_mask_;
    while (slots_[at].pair != UINT64_MAX && slots_[at].pair != pair) at = (at + 1) & slot_mask_;
    slots_[at] = {pair, {static_cast<uint32_t>(rank), merge.result}};
  }
  if (!model.whole_words.empty()) {
    word_slots_.resize(std::bit_ceil(model.whole_words.size() * 3 / 2 + 2));
    for (const Word& word : model.whole_words) {
      if (word.bytes.empty()) continue;
      size_t at = std::hash<std::string_view>()(word.bytes) & (word_slots_.size() - 1);
      while (word_slots_[at].length != 0) at = (at + 1) & (word_slots_.size() - 1);
      word_slots_[at] = {static_cast<uint32_t>(word_bytes_.size()), static_cast<uint32_t>(word.bytes.size()), word.id};
      word_bytes_ += word.bytes;
    }
  }
}

inline Bpe::Found Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  for (uint64_t at = mix(pair) & slot_mask_;; at = (at + 1) & slot_mask_) {
    const Slot& slot = slots_[at];
    if (slot.pair == pair) return slot.found;
    if (slot.pair == UINT64_MAX) return {};
  }
}

int32_t Bpe::whole_word(std::string_view piece) const {
  for (size_t at = std::hash<std::string_view>()(piece) & (word_slots_.size() - 1);;
       at = (at + 1) & (word_slots_.size() - 1)) {
    const WordSlot& slot = word_slots_[at];
    if (slot.length == 0) return -1;
    if (std::string_view(word_bytes_).substr(slot.begin, slot.length) == piece) return slot.id;
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  if (piece.size() > WordCache::longest_piece) {
    encode_afresh(piece, out);
    return;
  }
  WordCache& cache = WordCache::of_thread(generation_);
  const WordCache::Key key = WordCache::key_of(piece);
  if (cache.append(key, out)) return;
  const size_t before = out.size();
  encode_afresh(piece, out);
  cache.keep(key, std::span(out).subspan(before));
}

void Bpe::encode_afresh(std::string_view piece, std::vector<int32_t>& out) const {
  if (!word_slots_.empty()) {
    if (const int32_t id = whole_word(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  thread_local std::vector<int32_t> ids;
  symbols(piece, ids);
  if (ids.size() <= short_piece)
    merge_short(ids);
  else
    merge_long(ids);
  out.insert(out.end(), ids.begin(), ids.end());
  if (ids.capacity() > size_t{1} << 16) std::vector<int32_t>().swap(ids);  // an odd one out: give the memory back
}

void Bpe::symbols(std::string_view piece, std::vector<int32_t>& ids) const {
  ids.clear();
  bool fuse = false;
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t id = bytes_[byte];
    if (id < 0) {
      if (unknown_ < 0)
        throw input_error("{}: byte 0x{:02X} has no token in this vocabulary, nor has what is unknown", name_, byte);
      if (fuse) continue;
      id = unknown_;
      fuse = fuse_unknown_;
    } else {
      fuse = false;
    }
    ids.push_back(id);
  }
}

void Bpe::merge_short(std::vector<int32_t>& ids) const {
  std::array<Found, short_piece> pairs;  // pairs[i]: the merge of ids[i] and ids[i + 1]
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == none) break;
    ids[best] = pairs[best].result;
    std::copy(ids.begin() + static_cast<ptrdiff_t>(best) + 2, ids.begin() + static_cast<ptrdiff_t>(count),
              ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(pairs.begin() + static_cast<ptrdiff_t>(best) + 1, pairs.begin() + static_cast<ptrdiff_t>(count) - 1,
              pairs.begin() + static_cast<ptrdiff_t>(best));
    --count;
    if (best + 1 < count) pairs[best] = find(ids[best], ids[best + 1]);
    if (best > 0) pairs[best - 1] = find(ids[best - 1], ids[best]);
  }
  ids.resize(count);
}

void Bpe::merge_long(std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;             // -1: merged away
    int32_t before, after;  // neighbours, -1 at the ends
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  if (ids.size() > static_cast<size_t>(INT32_MAX))
    throw input_error("a word of {} bytes is too long to encode", ids.size());
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  for (int32_t i = 0; i < count; ++i) symbol(i) = {ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};

  std::vector<Candidate> first;
  for (int32_t i = 0; i + 1 < count; ++i)
    if (const Found found = find(symbol(i).id, symbol(i + 1).id); found.rank != none) first.push_back({found.rank, i});
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue({}, std::move(first));
  const auto propose = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    if (const Found found = find(symbol(left).id, symbol(right).id); found.rank != none) queue.push({found.rank, left});
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.at);
    if (left.id < 0 || left.after < 0) continue;
    Symbol& right = symbol(left.after);
    const Found found = find(left.id, right.id);
    if (found.rank != best.rank) continue;  // one of the two has changed since
    left.id = found.result;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = best.at;
    propose(left.before, best.at);
    propose(best.at, left.after);
  }
  ids.clear();
  for (const Symbol& each : symbols)
    if (each.id >= 0) ids.push_back(each.id);
}

}  // namespace strata::data
