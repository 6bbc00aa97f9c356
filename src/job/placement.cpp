#include "job/placement.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace strata::job {

namespace {

/// A scheme as a row. "level" stands for placement.level.
struct Preset {
  std::string name;
  std::string weights, secondary, gradients, optimizer;
  std::array<Wire, purposes> wires;  ///< weights, gradients, reduction, update
  HopPlan gradient_hops;
};

const std::vector<Preset>& presets() {
  constexpr std::array<Wire, purposes> full = {Wire::full, Wire::full, Wire::full, Wire::full};
  const HopPlan two_hops = {{"package", "node"}, {"system"}};
  static const std::vector<Preset> table = {
      // name, weights, secondary, gradients, optimizer, wires, hops of gradients
      {"ddp", "none", "none", "none", "none", full, {}},
      {"zero1", "none", "none", "none", "all", full, {}},
      {"zero2", "none", "none", "all", "all", full, {}},
      {"zero3", "all", "none", "all", "all", full, {}},
      {"hsdp", "level", "none", "level", "level", full, {}},
      {"mics", "level", "none", "level", "level", full, {}},
      {"zeropp", "all", "node", "all", "all", {Wire::int8, Wire::int4, Wire::full, Wire::full}, two_hops},
      {"zero-topo", "package", "none", "node", "all", {Wire::int8, Wire::int4, Wire::bf16, Wire::bf16}, two_hops},
  };
  return table;
}

const Preset* find_preset(std::string_view name) {
  for (const Preset& preset : presets())
    if (preset.name == name) return &preset;
  return nullptr;
}

constexpr Purpose all_purposes[] = {Purpose::weights, Purpose::gradients, Purpose::reduction, Purpose::update};

std::string listed(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Names of levels on one tree, and errors that say where a name came from.
struct Tree {
  std::span<const std::string> levels;
  std::string where;

  int find(std::string_view name) const {
    for (size_t i = 0; i < levels.size(); ++i)
      if (levels[i] == name) return static_cast<int>(i);
    return -1;
  }
  int level(std::string_view name, std::string_view key) const {
    const int index = find(name);
    if (index < 0)
      throw input_error("{}{}: no level is named \"{}\"{}; the levels are {}", where, key, name,
                        did_you_mean(name, levels), listed(levels));
    return index;
  }
  int reach(std::string_view name, std::string_view key) const {
    if (name.empty() || name == "none") return 0;
    if (name == "all") return static_cast<int>(levels.size());
    return level(name, key) + 1;
  }
};

/// A preset's plan on any tree: a hop ends with the outermost of its levels that the tree has, and begins where the one
/// before it ended, so that levels of other names join the hop around them.
std::vector<Hop> preset_hops(const Tree& tree, const HopPlan& plan) {
  std::vector<Hop> hops;
  int next = 0;
  for (const std::vector<std::string>& names : plan) {
    int last = next;
    for (const std::string& name : names) last = std::max(last, tree.find(name) + 1);
    if (last > next) hops.push_back({next, last});
    next = last;
  }
  for (; next < static_cast<int>(tree.levels.size()); ++next) hops.push_back({next, next + 1});
  return hops;
}

/// A job's plan: the levels innermost first, none left out; those beyond the last named one are one hop each.
std::vector<Hop> given_hops(const Tree& tree, const HopPlan& plan, const std::string& key) {
  std::vector<Hop> hops;
  int next = 0;
  for (const std::vector<std::string>& names : plan) {
    const int first = next;
    for (const std::string& name : names) {
      if (tree.level(name, key) != next)
        throw input_error(
            "{}{}: \"{}\" comes where \"{}\" is due; hops name the levels innermost first, none left out ({})",
            tree.where, key, name, tree.levels[static_cast<size_t>(next)], listed(tree.levels));
      ++next;
    }
    hops.push_back({first, next});
  }
  for (; next < static_cast<int>(tree.levels.size()); ++next) hops.push_back({next, next + 1});
  return hops;
}

}  // namespace

std::span<const std::string> placement_presets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Preset& preset : presets()) result.push_back(preset.name);
    return result;
  }();
  return names;
}

bool takes_level(std::string_view preset) {
  const Preset* found = find_preset(preset);
  return found && found->weights == "level";
}

Sharding resolve_placement(const Job& job, std::span<const std::string> levels, const std::string& where) {
  STRATA_CHECK(!levels.empty());
  const Placement& placement = job.placement;
  const Tree tree{levels, where.empty() ? "" : where + ": "};
  const Preset* preset = placement.preset.empty() ? nullptr : find_preset(placement.preset);
  if (!preset && !placement.preset.empty())
    throw input_error("{}placement.preset: there is none named \"{}\"{}", tree.where, placement.preset,
                      did_you_mean(placement.preset, placement_presets()));

  const auto reach = [&](std::string_view state, const std::string& own, const std::string Preset::*of_preset) {
    if (!preset) return tree.reach(own, fmt::format("placement.{}", state));
    const std::string& name = preset->*of_preset;
    if (name != "level") return tree.reach(name, fmt::format("placement.preset {} shards {}", preset->name, state));
    return tree.reach(placement.level.empty() ? "node" : placement.level, "placement.level");
  };
  Sharding result;
  result.weights = reach("weights", placement.weights, &Preset::weights);
  result.secondary = reach("secondary", placement.secondary, &Preset::secondary);
  result.gradients = reach("gradients", placement.gradients, &Preset::gradients);
  result.optimizer = reach("optimizer", placement.optimizer, &Preset::optimizer);

  const auto name = [&](int reached) {
    return reached == 0 ? "none" : levels[static_cast<size_t>(reached - 1)].c_str();
  };
  if (result.gradients < result.weights)
    throw input_error(
        "{}placement: gradients over {} are narrower than weights over {}; give gradients at least the level of "
        "the weights",
        tree.where, name(result.gradients), name(result.weights));
  if (result.optimizer < result.gradients)
    throw input_error(
        "{}placement: optimizer over {} is narrower than gradients over {}; give the optimizer at least the "
        "level of the gradients",
        tree.where, name(result.optimizer), name(result.gradients));
  if (result.secondary > 0 && result.secondary >= result.weights)
    throw input_error("{}placement: secondary over {} must be strictly narrower than weights over {}, or \"none\"",
                      tree.where, name(result.secondary), name(result.weights));

  for (Purpose purpose : all_purposes) {
    const auto p = static_cast<size_t>(purpose);
    const WireChoice& choice = placement.wires[p];
    const Wire base = choice.everywhere ? *choice.everywhere : preset ? preset->wires[p] : Wire::full;
    result.wires[p].assign(levels.size(), base);
    for (const auto& [level, wire] : choice.at)
      result.wires[p][static_cast<size_t>(tree.level(level, fmt::format("placement.wires.{}", name_of(purpose))))] =
          wire;

    // What travels in one hop travels on one wire: a preset's hops give way, a job's own are its word against it.
    const std::vector<Wire>& wires = result.wires[p];
    const auto at = [&](int level) { return wires[static_cast<size_t>(level)]; };
    const std::string key = fmt::format("placement.hops.{}", name_of(purpose));
    const bool given = !placement.hops[p].empty();
    const std::vector<Hop> hops =
        given ? given_hops(tree, placement.hops[p], key)
              : preset_hops(tree, preset && purpose == Purpose::gradients ? preset->gradient_hops : HopPlan{});
    for (const Hop& hop : hops)
      for (int first = hop.first, level = hop.first + 1; level <= hop.last; ++level) {
        if (level < hop.last && at(level) == at(first)) continue;
        if (given && level < hop.last)
          throw input_error(
              "{}{}: {} and {} are crossed in one hop, but placement.wires.{} gives the one {} and the other {}; give "
              "both one wire, or hops of their own",
              tree.where, key, levels[static_cast<size_t>(first)], levels[static_cast<size_t>(level)], name_of(purpose),
              name_of(at(first)), name_of(at(level)));
        result.hops[p].push_back({first, level});
        first = level;
      }
  }
  return result;
}

std::vector<std::string> level_names(const Job& job) {
  std::vector<std::string> names;
  for (const machine::Level& level : job.mesh.levels) names.push_back(level.name);
  if (names.empty() && job.run.machine.empty())
    names.assign(machine::usual_level_names().begin(), machine::usual_level_names().end());
  return names;
}

std::string describe(const Sharding& sharding, std::span<const std::string> levels) {
  std::string text;
  const auto add = [&](const char* state, int reach) {
    if (!text.empty()) text += ", ";
    text += reach == 0 ? fmt::format("{} on every rank", state)
                       : fmt::format("{} over {}", state, levels[static_cast<size_t>(reach - 1)]);
  };
  add("weights", sharding.weights);
  if (sharding.secondary > 0) add("secondary", sharding.secondary);
  add("gradients", sharding.gradients);
  add("optimizer", sharding.optimizer);
  return text;
}

std::string describe_wires(const Sharding& sharding, std::span<const std::string> levels) {
  const int all = static_cast<int>(levels.size());
  // The levels that each purpose crosses.
  const std::array<Hop, purposes> spans = {Hop{0, sharding.weights}, Hop{0, sharding.gradients},
                                           Hop{sharding.gradients, all}, Hop{sharding.weights, sharding.optimizer}};
  std::string text;
  for (Purpose purpose : all_purposes) {
    const Hop span = spans[static_cast<size_t>(purpose)];
    std::string wires, hops;
    bool same = true, joined = false;
    for (int level = span.first; level < span.last; ++level) {
      const Wire wire = sharding.wires[static_cast<size_t>(purpose)][static_cast<size_t>(level)];
      same &= wire == sharding.wires[static_cast<size_t>(purpose)][static_cast<size_t>(span.first)];
      wires +=
          fmt::format("{}{} over {}", wires.empty() ? "" : ", ", name_of(wire), levels[static_cast<size_t>(level)]);
    }
    if (wires.empty()) continue;
    const Wire first = sharding.wires[static_cast<size_t>(purpose)][static_cast<size_t>(span.first)];
    if (same) wires = name_of(first);
    for (const Hop& hop : sharding.hops[static_cast<size_t>(purpose)]) {
      const int from = std::max(hop.first, span.first), to = std::min(hop.last, span.last);
      joined |= to > from + 1;
      for (int level = from; level < to; ++level)
        hops += (hops.empty() ? "" : level == from ? ", " : "+") + levels[static_cast<size_t>(level)];
    }
    if (same && first == Wire::full && !joined) continue;
    text +=
        fmt::format("{}{} {}{}", text.empty() ? "" : "; ", name_of(purpose), wires, joined ? " in hops " + hops : "");
  }
  return text.empty() ? "full" : text;
}

}  // namespace strata::job
