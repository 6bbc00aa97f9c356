#include "data/survey.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "data/build.h"

namespace strata::data {

namespace {

constexpr size_t most_counts = size_t{1} << 24;

// Counts of lengths, on a scale that gets coarser with the length: 64 steps to each doubling.
class LengthCounter {
 public:
  void add(std::span<const int64_t> lengths) {
    for (const int64_t length : lengths) {
      ++counts_[bucket(length)];
      sum_ += static_cast<double>(length);
      least_ = std::min(least_, length);
      most_ = std::max(most_, length);
    }
    total_ += static_cast<int64_t>(lengths.size());
  }

  Lengths result() const {
    if (total_ == 0) return {};
    return {.count = total_,
            .empty = counts_[0],
            .least = least_,
            .most = most_,
            .mean = sum_ / static_cast<double>(total_),
            .p10 = below(0.10),
            .p50 = below(0.50),
            .p90 = below(0.90),
            .p99 = below(0.99)};
  }

 private:
  static size_t bucket(int64_t length) {
    const auto value = static_cast<uint64_t>(length);
    if (value < 64) return value;
    const int shift = std::bit_width(value) - 7;  // seven leading bits, the first of which is always set
    return 64 * static_cast<size_t>(shift + 1) + (value >> shift & 63);
  }
  static int64_t first_of(size_t index) {
    if (index < 64) return static_cast<int64_t>(index);
    return static_cast<int64_t>((64 + index % 64) << (index / 64 - 1));
  }
  int64_t below(double share) const {
    int64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (static_cast<double>(seen) >= share * static_cast<double>(total_)) return std::max(first_of(i), least_);
    }
    return most_;
  }

  std::array<int64_t, 64 * 59> counts_{};
  int64_t total_ = 0, least_ = INT64_MAX, most_ = 0;
  double sum_ = 0;
};

}  // namespace

Survey survey(const MegatronFile& file, int64_t vocab) {
  Survey result;
  std::vector<int64_t> counts;
  std::vector<int32_t> part(size_t{1} << 16);
  bool counted = true;
  for (int64_t at = 0; at < file.tokens(); at += static_cast<int64_t>(part.size())) {
    const auto count = static_cast<size_t>(std::min(file.tokens() - at, static_cast<int64_t>(part.size())));
    const std::span<int32_t> ids = std::span(part).first(count);
    file.read(at, vocab, ids);
    const int32_t largest = *std::max_element(ids.begin(), ids.end());
    result.largest_id = std::max(result.largest_id, largest);
    counted = counted && static_cast<size_t>(largest) < most_counts;
    if (!counted) continue;
    if (static_cast<size_t>(largest) >= counts.size()) counts.resize(static_cast<size_t>(largest) + 1);
    for (const int32_t id : ids) ++counts[static_cast<size_t>(id)];
  }
  if (counted) {
    result.entropy = unigram_entropy(counts);
    result.distinct_ids = std::count_if(counts.begin(), counts.end(), [](int64_t count) { return count > 0; });
  }
  LengthCounter sequences, documents;
  file.index().for_sequence_lengths([&](std::span<const int64_t> lengths) { sequences.add(lengths); });
  file.index().for_document_lengths([&](std::span<const int64_t> lengths) { documents.add(lengths); });
  result.sequences = sequences.result();
  result.documents = documents.result();
  return result;
}

}  // namespace strata::data
