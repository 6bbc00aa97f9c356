#pragma once
// What a job's placement means on a tree of levels. The one place that knows sharding schemes by name.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "job/job.h"
#include "machine/file.h"

namespace strata::job {

/// Levels [first, last) crossed by one transfer.
struct Hop {
  int first = 0, last = 0;
  bool operator==(const Hop&) const = default;
};

/// A state's reach: over how many levels, innermost first, data-parallel peers share one copy. 0 = every rank has its
/// own.
struct Sharding {
  int weights = 0, secondary = 0, gradients = 0, optimizer = 0;
  std::array<std::vector<Wire>, purposes> wires;  ///< per purpose and level
  std::array<std::vector<Hop>, purposes> hops;    ///< per purpose, innermost first, covering all levels
  bool operator==(const Sharding&) const = default;
};

/// Names of the placement presets.
std::span<const std::string> placement_presets();

/// Whether a preset takes placement.level.
bool takes_level(std::string_view preset);

/// The job's placement on levels of these names, innermost first. Throws an input error, opened by `where`, when a name
/// is no level or the four reaches break a rule: optimizer >= gradients >= weights > secondary.
Sharding resolve_placement(const Job& job, std::span<const std::string> levels, const std::string& where = "");

/// The machine that run.machine names: of machines/, or a file's path. Throws an input error if there is none.
machine::Machine load_machine(const std::string& name_or_path);

/// run.machine's, every level's width known for so many ranks. Throws an input error if the job names none, or one that they
/// do not fill.
machine::Machine machine_of(const Job& job, int64_t ranks);

/// The levels on which a job of so many ranks runs, every width known: those of mesh.levels, else of run.machine's file, else
/// one host.
std::vector<machine::Level> levels_of(const Job& job, int64_t ranks);

/// Names of the levels that the job itself settles: those of mesh.levels, else the usual ones; empty when run.machine
/// names a machine whose file settles them.
std::vector<std::string> level_names(const Job& job);

/// "weights over package, gradients over node, optimizer over system"
std::string describe(const Sharding& sharding, std::span<const std::string> levels);

/// "weights int8; gradients int4 in hops package+node; reduction bf16; update bf16": the purposes that cross a level on
/// another wire than full or in joined hops; "full" if none does.
std::string describe_wires(const Sharding& sharding, std::span<const std::string> levels);

}  // namespace strata::job
