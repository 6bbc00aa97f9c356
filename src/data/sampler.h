#pragma once
// Training samples out of tokenised datasets, in an order that is a pure function of (seed, sample number).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/blend.h"
#include "data/megatron.h"

namespace strata::data {

struct Source {
  std::filesystem::path prefix;  ///< PREFIX of PREFIX.bin and PREFIX.idx
  double weight = 1.0;           ///< share of the samples, relative to the other sources
};

/// Which documents (first, one behind the last) share `share` of a dataset has when it is split by `shares`, numbers in any
/// unit that sum to more than 0: ranges side by side, in that order, that cover all. Counted in documents and rounded as
/// Megatron-LM does for its "969,30,1": each range is its part of the documents, rounded to nearest (halves to even), and
/// all borders move by what the sum of the ranges is off by, so that the last one is the end.
std::pair<int64_t, int64_t> split_documents(std::span<const double> shares, size_t share, int64_t documents);

/// A part of every source's documents; `shares` empty: all of them.
struct Split {
  std::vector<double> shares;
  size_t share = 0;
};

enum class Order {
  shuffled,    ///< each epoch of a source in an order of its own
  sequential,  ///< as the tokens lie, again and again: for validation
};

/// Samples of `sequence` + 1 tokens. All documents of a source (of its share, if it is split) are one stream of T tokens; its
/// sample k is the tokens k x sequence .. (k+1) x sequence, so neighbours share one token (input of the one, target of the
/// other) and an epoch has n = (T - 1) / sequence samples, rounded down. The j-th sample drawn from a source is sample
/// p(j mod n) of epoch j / n, p being a permutation keyed by (seed, file name of the source, epoch). Which source the g-th
/// sample comes from is said by Blend. Nothing depends on ranks or on what was drawn before; reading is safe from several
/// threads and allocates nothing.
class Dataset {
 public:
  /// Opens and checks the files. Token ids must be below `vocab`; that is checked as samples are read. Throws input
  /// errors: no source, bad weights, files that do not fit together, a source (or share of one) with too little text for
  /// one sample.
  Dataset(std::span<const Source> sources, int64_t sequence, uint64_t seed, int64_t vocab,
          Order order = Order::shuffled, const Split& split = {});

  /// Another share of the same files, without opening them again.
  Dataset share(size_t share, Order order) const;

  /// Sample `index` (0 and up, without end) into `tokens`, which has sequence + 1 elements. Throws an input error for ids
  /// past the vocabulary and for a file that was cut since it was opened.
  void sample(int64_t index, std::span<int32_t> tokens) const;

  /// The same and, for each of the first `sequence` tokens, where its document begins: the index in the sample of that
  /// document's first token, 0 where it lies before the sample. So attention that keeps to documents lets token i see the
  /// tokens document_starts[i] .. i.
  void sample(int64_t index, std::span<int32_t> tokens, std::span<int32_t> document_starts) const;

  /// Lets the system fetch the samples first .. first + count - 1 into its cache in the background.
  void will_need(int64_t first, int64_t count) const;

  struct Place {
    int source;
    int64_t epoch;
    int64_t sample;  ///< within the source: its tokens begin at first_token(source) + sample x sequence
  };
  Place locate(int64_t index) const;

  int64_t sequence() const { return sequence_; }
  int sources() const { return static_cast<int>(parts_.size()); }
  int64_t samples(int source) const { return parts_[static_cast<size_t>(source)].samples; }  ///< in one epoch of it
  int64_t samples() const;                                                                   ///< in one epoch of each
  int64_t tokens() const;                                                                    ///< of all sources
  int64_t first_token(int source) const { return parts_[static_cast<size_t>(source)].first; }
  const MegatronFile& file(int source) const { return *parts_[static_cast<size_t>(source)].file; }

 private:
  struct Part {
    std::shared_ptr<const MegatronFile> file;
    uint64_t key = 0;
    int64_t first = 0, tokens = 0, samples = 0;
  };
  void take_share(size_t share);
  int64_t first_token_of(const Place& place) const;
  std::vector<Part> parts_;
  Blend blend_;
  int64_t sequence_, vocab_;
  Order order_;
  std::vector<double> shares_;
};

}  // namespace strata::data
