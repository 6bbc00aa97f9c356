#include "comm/messages.h"

#include <algorithm>

#include "core/error.h"
#include "device/device.h"
#include "ops/op.h"

namespace strata::comm {

using layout::Cut;

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_gather: return "all-gather";
    case Collective::reduce_scatter: return "reduce-scatter";
    case Collective::all_reduce: return "all-reduce";
    case Collective::send: return "send";
  }
  return "?";
}

std::string_view name_of(Algorithm algorithm) { return algorithm == Algorithm::direct ? "direct" : "ring"; }

int64_t Hop::members() const { return layout::shards(widths, static_cast<int>(widths.size())); }

int crossed(const Hop& hop, int64_t a, int64_t b) {
  // The outermost level counts least in a member's number.
  for (auto level = static_cast<int>(hop.widths.size()) - 1; level > 0; --level) {
    const int64_t width = hop.widths[static_cast<size_t>(level)];
    if (a % width != b % width) return level;
    a /= width;
    b /= width;
  }
  return 0;
}

namespace {

constexpr int64_t summed_slice = 32 * ops::grain;  // 256 KiB of fp32
constexpr int64_t longest_message = int64_t{1} << 30;

Cut part_of(const Hop& hop, int64_t member) { return layout::part({0, hop.elements}, hop.members(), member); }

/// The `round`-th slice of a cut; empty past its end.
Cut slice_of(const Cut& cut, int64_t slice, int64_t round) {
  const int64_t begin = std::min(round * slice, cut.elements);
  return {cut.begin + begin, std::min(slice, cut.elements - begin)};
}

int64_t largest_part(const Hop& hop) {
  int64_t most = 0;
  for (int64_t member = 0; member < hop.members(); ++member) most = std::max(most, part_of(hop, member).elements);
  return most;
}

int64_t slices_of(int64_t elements, int64_t slice) { return (elements + slice - 1) / slice; }

/// Members in the order of their ranks: the innermost level's coordinate counts least there.
std::vector<int64_t> by_rank(const Hop& hop) {
  std::vector<int64_t> order;
  const int64_t members = hop.members();
  for (int64_t rank = 0; rank < members; ++rank) {
    int64_t member = 0, rest = rank;
    for (int64_t width : hop.widths) {
      member = member * width + rest % width;
      rest /= width;
    }
    order.push_back(member);
  }
  return order;
}

}  // namespace

bool in_place(const Hop& hop) {
  return (hop.collective == Collective::all_gather || hop.collective == Collective::send) &&
         hop.wire.lossless(hop.dtype) && hop.wire.kind == device::WireKind::raw && hop.wire.dtype == hop.dtype;
}

int64_t slice(const Hop& hop) {
  if (hop.algorithm == Algorithm::ring || in_place(hop)) return longest_message / size_of(hop.dtype);
  return summed_slice;
}

int window(const Hop& hop) { return hop.algorithm == Algorithm::ring ? 1 : 2; }

Messages messages(const Hop& hop, int64_t member) {
  Messages result;
  const int64_t members = hop.members(), step = slice(hop);
  const auto add = [&](std::vector<Message>& list, int64_t round, int64_t from, int64_t to, const Cut& values) {
    if (values.elements > 0)
      list.push_back({static_cast<int32_t>(round), from, to, values, hop.wire.bytes(values.elements)});
  };
  if (hop.collective == Collective::send) {
    STRATA_CHECK(members == 2 && in_place(hop));
    result.rounds = static_cast<int32_t>(slices_of(hop.elements, step));
    for (int32_t round = 0; round < result.rounds; ++round)
      add(member == 0 ? result.sends : result.receives, round, 0, 1, slice_of({0, hop.elements}, step, round));
    return result;
  }
  if (hop.algorithm == Algorithm::direct) {
    const bool whole = hop.collective == Collective::all_reduce;
    const int64_t rounds = slices_of(whole ? hop.elements : largest_part(hop), step);
    result.rounds = static_cast<int32_t>(rounds);
    for (int64_t round = 0; round < rounds; ++round)
      // Each round of a member begins with another peer, so that no one receives from all at once.
      for (int64_t k = 1; k < members; ++k) {
        const int64_t to = (member + k) % members, from = (member + members - k) % members;
        const auto part = [&](int64_t m) { return whole ? Cut{0, hop.elements} : part_of(hop, m); };
        const bool gather = hop.collective == Collective::all_gather;
        add(result.sends, round, member, to, slice_of(part(gather ? member : to), step, round));
        add(result.receives, round, from, member, slice_of(part(gather ? from : member), step, round));
      }
    return result;
  }

  STRATA_CHECK(hop.collective != Collective::all_reduce, "a ring all-reduce is a reduce-scatter and an all-gather");
  const std::vector<int64_t> order = by_rank(hop);
  const auto place = std::find(order.begin(), order.end(), member) - order.begin();
  const auto at = [&](int64_t position) {
    return order[static_cast<size_t>(((position % members) + members) % members)];
  };
  const int64_t next = at(place + 1), before = at(place - 1);
  result.rounds = static_cast<int32_t>(members - 1);
  for (int64_t round = 0; round + 1 < members; ++round) {
    // A gather passes on what came last, beginning with its own; a sum ends with the part that a member keeps.
    const int64_t shift = hop.collective == Collective::all_gather ? 0 : 1;
    const Cut sent = part_of(hop, at(place - round - shift)), received = part_of(hop, at(place - round - 1 - shift));
    for (int64_t s = 0; s < slices_of(sent.elements, step); ++s)
      add(result.sends, round, member, next, slice_of(sent, step, s));
    for (int64_t s = 0; s < slices_of(received.elements, step); ++s)
      add(result.receives, round, before, member, slice_of(received, step, s));
  }
  return result;
}

int64_t staging_bytes(const Hop& hop) {
  if (in_place(hop)) return 0;
  const int64_t peers = hop.members() - 1;
  if (hop.algorithm == Algorithm::ring) {  // what goes out, what comes in, and the sum of both
    const int64_t part = largest_part(hop);
    STRATA_CHECK(part <= slice(hop), "a part of {} elements in a ring", part);
    const int64_t sum = hop.collective == Collective::reduce_scatter ? part * size_of(hop.dtype) : 0;
    return 2 * round_up(hop.wire.bytes(part), device::alignment) + round_up(sum, device::alignment);
  }
  const bool whole = hop.collective == Collective::all_reduce;
  const int64_t most = std::min(slice(hop), whole ? hop.elements : largest_part(hop));
  const bool encodes = !(hop.wire.kind == device::WireKind::raw && hop.wire.dtype == hop.dtype);
  const int64_t sends = !encodes ? 0 : hop.collective == Collective::reduce_scatter ? peers : 1;
  return window(hop) * (sends + peers) * round_up(hop.wire.bytes(most), device::alignment);
}

}  // namespace strata::comm
