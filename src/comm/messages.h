#pragma once
// Who sends what to whom in one hop of a collective: listed once, here. hop.h walks the list, the simulator prices it, the
// ledger counts it. Pure.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "device/wire.h"
#include "layout/cuts.h"

namespace strata::comm {

enum class Collective : uint8_t {
  all_gather,      ///< each member's part becomes everybody's whole
  reduce_scatter,  ///< the sum of all wholes, each member keeping its part
  all_reduce,      ///< the sum of all wholes, everywhere: every member sends everything, for a few values
  send,            ///< the first member's whole becomes the second's, as it is
};
std::string_view name_of(Collective collective);

enum class Algorithm : uint8_t {
  direct,  ///< every member to every other: one wait, sums in a fixed order
  ring,    ///< neighbour to neighbour in the order of ranks, as published libraries do; sums in the order of the ring
};
std::string_view name_of(Algorithm algorithm);

/// One hop: a collective over the ranks that differ in the coordinates of some neighbouring levels only.
///
/// Members are numbered as their parts lie in the vector: the innermost level's coordinate counts most. Parts are cut as
/// layout::part does.
struct Hop {
  Collective collective = Collective::all_gather;
  Algorithm algorithm = Algorithm::direct;
  std::vector<int64_t> widths;  ///< of the levels it spans, innermost first; their product is the number of members
  int64_t elements = 0;         ///< of the whole vector
  DType dtype = DType::f32;     ///< of the values at either end
  device::Wire wire{};          ///< how they travel

  int64_t members() const;
  bool operator==(const Hop&) const = default;
};

/// Which of a hop's levels (an index in its widths) two members' message crosses: the outermost in which they differ.
int crossed(const Hop& hop, int64_t a, int64_t b);

struct Message {
  int32_t round = 0;  ///< at either end; a member's rounds begin in order
  int64_t from = 0, to = 0;
  layout::Cut values;  ///< in the hop's vector; what travels is wire.bytes(values.elements)
  int64_t bytes = 0;
};

/// All messages of one member, each list in the order in which it begins them; messages of one sender to one receiver come
/// in the same order in both members' lists.
struct Messages {
  int32_t rounds = 0;
  std::vector<Message> sends, receives;
};
Messages messages(const Hop& hop, int64_t member);

/// Elements of a part that one round moves: pieces small enough that what has arrived is still in a cache when it is summed
/// or decoded. Whole parts (up to a gibibyte) where nothing is done to what arrives.
int64_t slice(const Hop& hop);

/// Rounds under way at once; each has a part of the staging memory of its own.
int window(const Hop& hop);

/// Whether values travel as they are, from where they are and to where they belong.
bool in_place(const Hop& hop);

/// Memory that a member needs for encoded or arriving values, in bytes.
int64_t staging_bytes(const Hop& hop);

}  // namespace strata::comm
