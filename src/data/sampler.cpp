#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace strata::data {

namespace {

Blend blend_of(std::span<const Source> sources) {
  if (sources.empty()) throw input_error("no data source is given");
  std::vector<double> weights;
  for (const Source& source : sources) weights.push_back(source.weight);
  return Blend(weights);
}

}  // namespace

std::pair<int64_t, int64_t> split_documents(std::span<const double> shares, size_t share, int64_t documents) {
  STRATA_CHECK(share < shares.size());
  double sum = 0;
  for (const double each : shares) sum += each;
  STRATA_CHECK(sum > 0 && std::isfinite(sum));
  std::vector<int64_t> borders = {0};
  for (const double each : shares)
    borders.push_back(borders.back() + std::llrint(each / sum * static_cast<double>(documents)));
  const int64_t off = borders.back() - documents;
  for (size_t i = 1; i < borders.size(); ++i)
    borders[i] = std::clamp<int64_t>(borders[i] - off, borders[i - 1], documents);
  return {borders[share], borders[share + 1]};
}

Dataset::Dataset(std::span<const Source> sources, int64_t sequence, uint64_t seed, int64_t vocab, Order order,
                 const Split& split)
    : blend_(blend_of(sources)), sequence_(sequence), vocab_(vocab), order_(order), shares_(split.shares) {
  STRATA_CHECK(sequence > 0 && vocab > 0);
  for (const Source& source : sources) {
    auto file = std::make_shared<const MegatronFile>(source.prefix);
    const uint64_t key = random_key(seed, "data/" + file->prefix().filename().string());
    parts_.push_back({std::move(file), key});
  }
  take_share(split.share);
}

Dataset Dataset::share(size_t share, Order order) const {
  Dataset other = *this;
  other.order_ = order;
  other.take_share(share);
  return other;
}

void Dataset::take_share(size_t share) {
  for (Part& part : parts_) {
    const MegatronIndex& index = part.file->index();
    std::pair<int64_t, int64_t> documents = {0, index.documents()};
    if (!shares_.empty()) documents = split_documents(shares_, share, index.documents());
    part.first = index.document_begin(documents.first);
    part.tokens = index.document_begin(documents.second) - part.first;
    part.samples = (part.tokens - 1) / sequence_;
    if (part.tokens > sequence_) continue;
    constexpr const char* names[] = {"training", "validation", "testing"};
    const std::string what =
        shares_.empty()
            ? ""
            : fmt::format(" in the share that data.split gives to {} (documents {} to {} of {})",
                          names[std::min<size_t>(share, 2)], documents.first, documents.second, index.documents());
    throw input_error(
        "{}: {} tokens{} are too few for one sample of {} (a sequence of {} and its last target); give more text{} or "
        "a shorter sequence",
        part.file->prefix().string(), part.tokens, what, sequence_ + 1, sequence_,
        shares_.empty() ? "" : ", a larger share");
  }
}

Dataset::Place Dataset::locate(int64_t index) const {
  const Blend::Place place = blend_.at(index);
  const Part& part = parts_[static_cast<size_t>(place.source)];
  const int64_t epoch = place.index / part.samples, position = place.index % part.samples;
  if (order_ == Order::sequential) return {place.source, epoch, position};
  const Random4 bits = philox(part.key, static_cast<uint64_t>(epoch));
  const uint64_t key = uint64_t{bits[0]} << 32 | bits[1];
  return {place.source, epoch, Permutation(key, part.samples)(position)};
}

int64_t Dataset::first_token_of(const Place& place) const {
  return parts_[static_cast<size_t>(place.source)].first + place.sample * sequence_;
}

void Dataset::sample(int64_t index, std::span<int32_t> tokens) const {
  STRATA_CHECK(static_cast<int64_t>(tokens.size()) == sequence_ + 1);
  const Place place = locate(index);
  file(place.source).read(first_token_of(place), vocab_, tokens);
}

void Dataset::sample(int64_t index, std::span<int32_t> tokens, std::span<int32_t> document_starts) const {
  STRATA_CHECK(static_cast<int64_t>(document_starts.size()) == sequence_);
  sample(index, tokens);
  const Place place = locate(index);
  file(place.source).index().document_starts(first_token_of(place), document_starts);
}

void Dataset::will_need(int64_t first, int64_t count) const {
  for (int64_t index = first; index < first + count; ++index) {
    const Place place = locate(index);
    file(place.source).will_need(first_token_of(place), sequence_ + 1);
  }
}

int64_t Dataset::samples() const {
  int64_t sum = 0;
  for (const Part& part : parts_) sum += part.samples;
  return sum;
}

int64_t Dataset::tokens() const {
  int64_t sum = 0;
  for (const Part& part : parts_) sum += part.tokens;
  return sum;
}

}  // namespace strata::data
