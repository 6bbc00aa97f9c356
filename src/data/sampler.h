#pragma once
// Training samples out of tokenised datasets, in an order that is a pure function of (seed, sample number).

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/megatron.h"

namespace strata::data {

struct Source {
  std::filesystem::path prefix;  ///< PREFIX of PREFIX.bin and PREFIX.idx
  double weight = 1.0;           ///< share of the samples, relative to the other sources
};

enum class Order {
  shuffled,    ///< each epoch of a source in an order of its own
  sequential,  ///< as the tokens lie, again and again: for validation
};

/// Samples of `sequence` + 1 tokens. All documents of a source are one stream of T tokens; its sample k is the tokens
/// k x sequence .. (k+1) x sequence, so neighbours share one token (input of the one, target of the other) and an epoch
/// has n = (T - 1) / sequence samples, rounded down. The j-th sample drawn from a source is sample p(j mod n) of epoch
/// j / n, p being a permutation keyed by (seed, file name of the source, epoch). Which source the g-th sample comes
/// from is said by Blend. Nothing depends on ranks or on what was drawn before; reading is safe from several threads
/// and allocates nothing.
class Dataset {
 public:
  /// Opens and checks the files. Token ids must be below `vocab`; that is checked as samples are read. Throws input
  /// errors: no source, bad weights, files that do not fit together, a source with too little text for one sample.
  Dataset(std::span<const Source> sources, int64_t sequence, uint64_t seed, int64_t vocab,
          Order order = Order::shuffled);

  /// Sample `index` (0 and up, without end) into `tokens`, which has sequence + 1 elements.
  void sample(int64_t index, std::span<int32_t> tokens) const;

  struct Place {
    int source;
    int64_t epoch;
    int64_t sample;  ///< within the source: its tokens begin at sample x sequence
  };
  Place locate(int64_t index) const;

  int64_t sequence() const { return sequence_; }
  int sources() const { return static_cast<int>(parts_.size()); }
  int64_t samples(int source) const { return parts_[static_cast<size_t>(source)].samples; }  ///< in one epoch of it
  int64_t samples() const;                                                                   ///< in one epoch of each
  int64_t tokens() const;                                                                    ///< of all sources
  const MegatronFile& file(int source) const { return parts_[static_cast<size_t>(source)].file; }

 private:
  struct Part {
    MegatronFile file;
    int64_t samples;
    uint64_t key;
  };
  std::vector<Part> parts_;
  Blend blend_;
  int64_t sequence_, vocab_;
  Order order_;
};

}  // namespace strata::data
