#include "data/sampler.h"

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

Dataset::Dataset(std::span<const Source> sources, int64_t sequence, uint64_t seed, int64_t vocab, Order order)
    : blend_(blend_of(sources)), sequence_(sequence), vocab_(vocab), order_(order) {
  STRATA_CHECK(sequence > 0 && vocab > 0);
  parts_.reserve(sources.size());
  for (const Source& source : sources) {
    MegatronFile file(source.prefix);
    const int64_t tokens = file.tokens(), samples = (tokens - 1) / sequence;
    if (tokens <= sequence)
      throw input_error(
          "{}: {} tokens are too few for one sample of {} (a sequence of {} and its last target); give more text or a "
          "shorter "
          "sequence",
          file.prefix().string(), tokens, sequence + 1, sequence);
    const uint64_t key = random_key(seed, "data/" + file.prefix().filename().string());
    parts_.push_back({std::move(file), samples, key});
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

void Dataset::sample(int64_t index, std::span<int32_t> tokens) const {
  STRATA_CHECK(static_cast<int64_t>(tokens.size()) == sequence_ + 1);
  const Place place = locate(index);
  parts_[static_cast<size_t>(place.source)].file.read(place.sample * sequence_, vocab_, tokens);
}

int64_t Dataset::samples() const {
  int64_t sum = 0;
  for (const Part& part : parts_) sum += part.samples;
  return sum;
}

int64_t Dataset::tokens() const {
  int64_t sum = 0;
  for (const Part& part : parts_) sum += part.file.tokens();
  return sum;
}

}  // namespace strata::data
