#pragma once
// Walks the messages of one hop: encodes what is sent, decodes or sums what has arrived, round by round.

#include <array>
#include <cstdint>
#include <vector>

#include "comm/messages.h"
#include "comm/transport.h"
#include "device/device.h"

namespace strata::comm {

/// What a hop sent over one of its levels.
struct Sent {
  int64_t bytes = 0, messages = 0;
  bool operator==(const Sent&) const = default;
};

/// What a member sends over each level of a hop, by the message list alone.
std::vector<Sent> sent_by(const Hop& hop, int64_t member);

/// One member's walk; reusable, one run at a time, allocates nothing after construction.
class HopRun {
 public:
  /// `ranks`: of the members, in order; `member`: this rank's number among them.
  HopRun(Hop hop, std::vector<int64_t> ranks, int64_t member);

  struct Buffers {
    device::Address in;       ///< all_gather: this member's part; else its whole vector
    device::Address out;      ///< all_gather, all_reduce: the whole vector; reduce_scatter: this member's part
    device::Address staging;  ///< staging_bytes(hop)
    device::Address error;    ///< f32, as long as `in`: carries encoding errors to the next run; null: they are lost
  };
  /// Starts. `in` may lie in `out` or `out` in `in`, at its place. `accumulate`: the sum is added to what `out` holds.
  void begin(Transport& transport, device::Device& device, const Buffers& buffers, int32_t tag,
             const device::Noise& noise, bool accumulate);
  /// Goes on as far as is possible without waiting. True when all is sent, received and done.
  bool advance();
  /// Whether the last advance got anything done.
  bool moved() const { return moved_; }
  /// Ranks whose messages have not come, or that have not taken ours.
  std::vector<int64_t> waiting_for() const;
  /// What this run has handed to the transport so far, by level of the hop.
  const std::vector<Sent>& sent() const { return sent_; }
  const Hop& hop() const { return hop_; }

 private:
  struct Entry {
    Message message;
    Transport::Ticket ticket = -1;
    int32_t area = -1;  ///< of the staging memory of its round; -1: where the values are
    int32_t level = 0;
  };
  struct Round {
    int32_t first_send = 0, last_send = 0, first_receive = 0, last_receive = 0;
  };

  void post(int32_t round);
  void finish(int32_t round);
  void finish_direct(int32_t round);
  void finish_ring(int32_t round);
  device::Address area(int32_t round, int32_t number) const;
  device::Address whole(device::Address base, int64_t element) const;

  Hop hop_;
  std::vector<int64_t> ranks_;
  int64_t member_;
  layout::Cut own_;
  int64_t area_bytes_ = 0;
  int32_t areas_ = 0;  ///< of one round
  std::vector<Entry> sends_, receives_;
  std::vector<Round> rounds_;
  std::vector<device::Address> sources_;
  std::vector<int32_t>
      source_order_;  ///< by member: its place among the sources, the innermost level's coordinate first
  std::vector<Sent> sent_;

  // Of the run.
  Transport* transport_ = nullptr;
  device::Device* device_ = nullptr;
  Buffers buffers_;
  device::Noise noise_;
  int32_t tag_ = 0, posted_ = 0, finished_ = 0;
  bool accumulate_ = false, moved_ = false;
};

}  // namespace strata::comm
