#pragma once
// Which source each sample of a weighted mixture comes from, as a pure function of the sample's number.

#include <cstdint>
#include <span>
#include <vector>

namespace strata::data {

/// Sample j of a source with share w falls due at time (j + 1/2) / w; samples are taken as they fall due, ties by
/// source (this is Webster's method of apportionment, which never takes back a sample as their number grows). Shares
/// are whole parts of 2^30, so all is exact integer arithmetic and the sequence repeats itself after 2^30 samples.
/// After g samples a source has given its share of g, to within (1 + sources) / 2. Cost of `at`: O(sources log
/// sources), no memory.
class Blend {
 public:
  struct Place {
    int source;
    int64_t index;  ///< how many samples of this source come before
  };

  /// Throws an input error unless every weight is finite and at least 0 and their sum is above 0. A positive weight
  /// counts as at least one part in 2^30.
  explicit Blend(std::span<const double> weights);

  Place at(int64_t sample) const;
  /// The source's share of 2^30.
  int64_t parts(int source) const { return parts_[static_cast<size_t>(source)]; }

 private:
  int64_t due_before(int64_t half_tick, size_t source) const;
  int64_t due_before(int64_t half_tick) const;
  std::vector<int64_t> parts_;
};

}  // namespace strata::data
