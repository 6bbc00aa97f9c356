#include "comm/hop_run.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"

namespace strata::comm {

using device::Address;
using layout::Cut;

std::vector<Sent> sent_by(const Hop& hop, int64_t member) {
  std::vector<Sent> sent(hop.widths.size());
  for (const Message& message : messages(hop, member).sends) {
    Sent& level = sent[static_cast<size_t>(crossed(hop, message.from, message.to))];
    level.bytes += message.bytes;
    ++level.messages;
  }
  return sent;
}

namespace {

/// Whether what is sent lies in the vector as it travels.
bool as_it_is(const Hop& hop) { return hop.wire.kind == device::WireKind::raw && hop.wire.dtype == hop.dtype; }

}  // namespace

HopRun::HopRun(Hop hop, std::vector<int64_t> ranks, int64_t member)
    : hop_(std::move(hop)), ranks_(std::move(ranks)), member_(member) {
  const int64_t members = hop_.members();
  STRATA_CHECK(static_cast<int64_t>(ranks_.size()) == members && member >= 0 && member < members);
  const bool whole = hop_.collective == Collective::all_reduce;
  own_ = whole ? Cut{0, hop_.elements} : layout::part({0, hop_.elements}, members, member);
  const Messages list = messages(hop_, member);
  rounds_.resize(static_cast<size_t>(list.rounds));

  int64_t most = 0;
  for (const auto* side : {&list.sends, &list.receives})
    for (const Message& message : *side) most = std::max(most, message.bytes);
  area_bytes_ = round_up(most, device::alignment);
  const bool gather = hop_.collective == Collective::all_gather, ring = hop_.algorithm == Algorithm::ring;
  const auto peers = static_cast<int32_t>(members - 1);
  const int32_t send_areas = ring || as_it_is(hop_) ? 0 : gather ? 1 : peers;
  if (!in_place(hop_) && !ring) areas_ = send_areas + peers;

  const auto entry = [&](const Message& message, int32_t area) {
    return Entry{message, -1, area, crossed(hop_, message.from, message.to)};
  };
  for (int32_t round = 0; round < list.rounds; ++round) {
    Round& r = rounds_[static_cast<size_t>(round)];
    r.first_send = static_cast<int32_t>(sends_.size());
    int32_t next = 0;
    for (const Message& message : list.sends)
      if (message.round == round) sends_.push_back(entry(message, send_areas == 0 ? -1 : gather ? 0 : next++));
    r.last_send = static_cast<int32_t>(sends_.size());
    r.first_receive = static_cast<int32_t>(receives_.size());
    next = send_areas;
    for (const Message& message : list.receives)
      if (message.round == round) receives_.push_back(entry(message, areas_ == 0 ? -1 : next++));
    r.last_receive = static_cast<int32_t>(receives_.size());
  }

  sent_.resize(hop_.widths.size());
  sources_.resize(static_cast<size_t>(members));
  for (int64_t m = 0; m < members; ++m) {
    // Members are numbered with the outermost coordinate fastest, sources with the innermost.
    int64_t rest = m, place = 0;
    for (auto width = hop_.widths.rbegin(); width != hop_.widths.rend(); ++width) {
      place = place * *width + rest % *width;
      rest /= *width;
    }
    source_order_.push_back(static_cast<int32_t>(place));
  }
}

Address HopRun::area(int32_t round, int32_t number) const {
  return buffers_.staging + (round % window(hop_) * areas_ + number) * area_bytes_;
}

Address HopRun::whole(Address base, int64_t element) const { return base + element * size_of(hop_.dtype); }

void HopRun::begin(Transport& transport, device::Device& device, const Buffers& buffers, int32_t tag,
                   const device::Noise& noise, bool accumulate) {
  STRATA_CHECK(posted_ == finished_, "a hop begins while it is under way");
  transport_ = &transport;
  device_ = &device;
  buffers_ = buffers;
  tag_ = tag;
  noise_ = noise;
  accumulate_ = accumulate;
  posted_ = finished_ = 0;
  std::fill(sent_.begin(), sent_.end(), Sent{});
  if (in_place(hop_) && hop_.collective == Collective::all_gather) {
    const Address place = whole(buffers_.out, own_.begin);
    if (!(place == buffers_.in)) device_->copy(place, buffers_.in, own_.elements * size_of(hop_.dtype));
  }
}

void HopRun::post(int32_t round) {
  const Round& r = rounds_[static_cast<size_t>(round)];
  const bool gather = hop_.collective == Collective::all_gather, ring = hop_.algorithm == Algorithm::ring;
  const auto staged_ring = [&](int32_t side) { return buffers_.staging + side * area_bytes_; };
  for (int32_t i = r.first_receive; i < r.last_receive; ++i) {
    Entry& e = receives_[static_cast<size_t>(i)];
    const Address to = in_place(hop_) ? whole(buffers_.out, e.message.values.begin)
                       : ring         ? staged_ring((round + 1) % 2)
                                      : area(round, e.area);
    e.ticket = transport_->receive(ranks_[static_cast<size_t>(e.message.from)], tag_, to, e.message.bytes);
  }
  bool encoded = false;
  for (int32_t i = r.first_send; i < r.last_send; ++i) {
    Entry& e = sends_[static_cast<size_t>(i)];
    const Cut& values = e.message.values;
    // A gather's `in` is the part alone.
    const Address source = whole(buffers_.in, values.begin - (gather ? own_.begin : 0));
    Address from;
    if (in_place(hop_)) {
      from = whole(buffers_.out, values.begin);
    } else if (ring) {
      from = staged_ring(round % 2);
      if (round == 0) device_->encode(hop_.wire, hop_.dtype, source, values.elements, from, noise_);
    } else if (e.area < 0) {
      from = source;
    } else {
      from = area(round, e.area);
      device::Noise noise = noise_;
      noise.first += values.begin;
      if (!gather || !encoded) {
        if (buffers_.error)
          device_->encode_with_feedback(
              hop_.wire, hop_.dtype, source, values.elements,
              buffers_.error + (values.begin - (gather ? own_.begin : 0)) * size_of(DType::f32), from, noise);
        else
          device_->encode(hop_.wire, hop_.dtype, source, values.elements, from, noise);
      }
      encoded = true;
    }
    e.ticket = transport_->send(ranks_[static_cast<size_t>(e.message.to)], tag_, from, e.message.bytes);
    Sent& sent = sent_[static_cast<size_t>(e.level)];
    sent.bytes += e.message.bytes;
    ++sent.messages;
  }
}

void HopRun::finish_direct(int32_t round) {
  const Round& r = rounds_[static_cast<size_t>(round)];
  if (hop_.collective == Collective::all_gather) {
    // The owner uses what the others see.
    if (r.first_send < r.last_send) {
      const Entry& e = sends_[static_cast<size_t>(r.first_send)];
      device_->decode(hop_.wire, area(round, e.area), e.message.values.elements, hop_.dtype,
                      whole(buffers_.out, e.message.values.begin));
    }
    for (int32_t i = r.first_receive; i < r.last_receive; ++i) {
      const Entry& e = receives_[static_cast<size_t>(i)];
      device_->decode(hop_.wire, area(round, e.area), e.message.values.elements, hop_.dtype,
                      whole(buffers_.out, e.message.values.begin));
    }
    return;
  }
  if (r.first_receive == r.last_receive) return;  // this member's part ends before this round
  const Cut& values = receives_[static_cast<size_t>(r.first_receive)].message.values;
  for (int32_t i = r.first_receive; i < r.last_receive; ++i) {
    const Entry& e = receives_[static_cast<size_t>(i)];
    sources_[static_cast<size_t>(source_order_[static_cast<size_t>(e.message.from)])] = area(round, e.area);
  }
  const int32_t own = source_order_[static_cast<size_t>(member_)];
  sources_[static_cast<size_t>(own)] = whole(buffers_.in, values.begin);
  device_->reduce(hop_.wire, sources_, hop_.widths, own, hop_.dtype, values.elements, hop_.dtype,
                  whole(buffers_.out, values.begin - own_.begin), accumulate_);
}

void HopRun::finish_ring(int32_t round) {
  const Round& r = rounds_[static_cast<size_t>(round)];
  const Address arrived = buffers_.staging + (round + 1) % 2 * area_bytes_;
  const bool last = round + 1 == static_cast<int32_t>(rounds_.size());
  if (hop_.collective == Collective::all_gather) {
    if (round == 0 && r.first_send < r.last_send) {
      const Entry& e = sends_[static_cast<size_t>(r.first_send)];
      device_->decode(hop_.wire, buffers_.staging, e.message.values.elements, hop_.dtype,
                      whole(buffers_.out, e.message.values.begin));
    }
    if (r.first_receive == r.last_receive) return;
    const Cut& values = receives_[static_cast<size_t>(r.first_receive)].message.values;
    device_->decode(hop_.wire, arrived, values.elements, hop_.dtype, whole(buffers_.out, values.begin));
    return;
  }
  if (r.first_receive == r.last_receive) return;
  const Cut& values = receives_[static_cast<size_t>(r.first_receive)].message.values;
  const std::array<Address, 2> sources = {arrived, whole(buffers_.in, values.begin)};
  const std::array<int64_t, 1> widths = {2};
  if (last) {
    device_->reduce(hop_.wire, sources, widths, 1, hop_.dtype, values.elements, hop_.dtype, buffers_.out, accumulate_);
    return;
  }
  // The partial sum travels on as it came.
  const Address partial = buffers_.staging + 2 * area_bytes_;
  device_->reduce(hop_.wire, sources, widths, 1, hop_.dtype, values.elements, hop_.dtype, partial, false);
  device::Noise noise = noise_;
  noise.first += values.begin;
  device_->encode(hop_.wire, hop_.dtype, partial, values.elements, arrived, noise);
}

void HopRun::finish(int32_t round) {
  if (in_place(hop_)) return;
  hop_.algorithm == Algorithm::ring ? finish_ring(round) : finish_direct(round);
}

bool HopRun::advance() {
  moved_ = false;
  const auto rounds = static_cast<int32_t>(rounds_.size());
  while (true) {
    while (posted_ < rounds && posted_ < finished_ + window(hop_)) {
      post(posted_++);
      moved_ = true;
    }
    if (finished_ == rounds) return true;
    bool open = false;
    const auto test = [&](std::vector<Entry>& entries, int32_t begin, int32_t end) {
      for (int32_t i = begin; i < end; ++i) {
        Transport::Ticket& ticket = entries[static_cast<size_t>(i)].ticket;
        if (ticket < 0) continue;
        if (transport_->done(ticket))
          ticket = -1, moved_ = true;
        else
          open = true;
      }
    };
    const Round& r = rounds_[static_cast<size_t>(finished_)];
    test(receives_, r.first_receive, r.last_receive);
    test(sends_, r.first_send, r.last_send);
    if (open) return false;
    finish(finished_++);
    moved_ = true;
  }
}

std::vector<int64_t> HopRun::waiting_for() const {
  std::vector<int64_t> result;
  const auto add = [&](const Entry& e, int64_t member) {
    if (e.ticket >= 0) result.push_back(ranks_[static_cast<size_t>(member)]);
  };
  for (const Entry& e : receives_) add(e, e.message.from);
  // A peer that takes nothing has stopped, too, but one whose own messages are missing says more.
  if (result.empty())
    for (const Entry& e : sends_) add(e, e.message.to);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace strata::comm
