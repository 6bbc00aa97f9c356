#pragma once
// What the links between the ranks of a run carry, measured.

#include <span>
#include <vector>

#include "comm/transport.h"
#include "layout/cuts.h"
#include "machine/file.h"

namespace strata::train {

/// The links of each level, measured on the ranks that run: bandwidth with every rank sending to its next neighbour in the
/// level and receiving from the one before, at the same time; where ranks share a link, also with one of them alone; latency of
/// messages of one byte that go round likewise, the least of some.
/// `nominal`: what they are taken for, which says how much to send and which ranks share a link. Levels of width 1 keep their
/// nominal figures. All ranks call it and get the same answer; each level takes about `seconds`. First every pair of
/// ranks exchanges a byte, so that connections are made.
std::vector<machine::Link> measure_links(comm::Transport& transport, const layout::Widths& widths,
                                         std::span<const machine::Link> nominal, double seconds);

}  // namespace strata::train
