#pragma once
// Generates tokens with a key/value cache: a program that takes many new tokens at once for the prompt, one that takes a
// single token after it, over one arena.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/device.h"
#include "execute/executor.h"
#include "job/job.h"
#include "model/unit.h"

namespace strata::execute {

class Generator {
 public:
  using Source = std::function<void(const model::Unit&, const model::Parameter&, std::span<float>)>;

  /// Builds, allocates and loads. `threads` is the device's; the device outlives the generator.
  Generator(const model::Config& config, DType compute, device::Device& device, int threads, const Source& weights);

  /// Forgets everything said so far.
  void clear() { position_ = 0; }
  /// Feeds tokens at the current position; logits() are then of what may follow the last. Input errors: an id outside the
  /// vocabulary, more tokens in all than the model's longest sequence.
  void feed(std::span<const int32_t> tokens);
  /// vocab() values, valid until the next feed.
  std::span<const float> logits() const { return logits_; }
  int64_t position() const { return position_; }
  int64_t longest() const { return config_.sequence; }
  int64_t planned_bytes() const { return arena_.bytes(); }

 private:
  struct Pass {
    step::Program program;
    std::unique_ptr<Executor> executor;
  };
  void run(Pass& pass, std::span<const int32_t> tokens);

  model::Config config_;
  Pass many_, one_;
  device::Memory arena_;
  int64_t position_ = 0;
  std::vector<int32_t> padded_;
  std::vector<float> logits_;
};

}  // namespace strata::execute
