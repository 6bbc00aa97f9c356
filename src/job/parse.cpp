// Layers of values - a preset, the file, the options - merged into one job, and the rules between keys.

#include <algorithm>
#include <cmath>
#include <list>
#include <map>

#include "core/text.h"
#include "files/atomic_file.h"
#include "files/json.h"
#include "job/batch.h"
#include "job/key.h"
#include "job/keys.h"
#include "job/placement.h"
#include "job/stages.h"
#include "model/hf_config.h"
#include "ops/op.h"

namespace strata::job {

namespace fs = std::filesystem;

std::string_view name_of(Recompute value) {
  switch (value) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
  }
  return "?";
}

std::string_view name_of(Pipeline value) {
  switch (value) {
    case Pipeline::gpipe: return "gpipe";
    case Pipeline::one_f_one_b: return "1f1b";
    case Pipeline::interleaved: return "interleaved";
    case Pipeline::zb_h1: return "zb-h1";
    case Pipeline::zb_v: return "zb-v";
  }
  return "?";
}

std::string_view name_of(Wire value) {
  switch (value) {
    case Wire::full: return "full";
    case Wire::fp32: return "fp32";
    case Wire::bf16: return "bf16";
    case Wire::int8: return "int8";
    case Wire::int4: return "int4";
  }
  return "?";
}

std::string_view name_of(Rounding value) { return value == Rounding::nearest ? "nearest" : "stochastic"; }

std::string_view name_of(DecayOn value) { return value == DecayOn::matrices ? "matrices" : "all"; }

std::string_view name_of(Collectives value) { return value == Collectives::levels ? "levels" : "flat"; }

std::string_view name_of(Purpose value) {
  switch (value) {
    case Purpose::weights: return "weights";
    case Purpose::gradients: return "gradients";
    case Purpose::reduction: return "reduction";
    case Purpose::update: return "update";
  }
  return "?";
}

std::string_view precision_name(DType type) {
  switch (type) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    default: return "?";
  }
}

void set_family(model::Config& config, model::Family family) {
  using model::Activation, model::Family, model::Initialisation;
  config.family = family;
  config.activation = family == Family::gpt2       ? Activation::gelu_tanh
                      : family == Family::gpt_neox ? Activation::gelu_exact
                                                   : Activation::swiglu;
  config.rotary_fraction = family == Family::gpt_neox ? 0.25 : 1;
  config.parallel_residual = family == Family::gpt_neox;
  config.tied = family == Family::gpt2;
  config.attention_bias = config.mlp_bias = family != Family::llama;
  config.initialisation = family == Family::gpt_neox ? Initialisation::small_wang : Initialisation::gpt2;
}

namespace {

using Merged = std::map<std::string, Given, std::less<>>;

enum Layer : int { preset_layer, file_layer, option_layer };

/// Pairs of keys of which only one can hold: in one layer they are an error, in a higher layer one displaces the other.
constexpr std::pair<std::string_view, std::string_view> rivals[] = {
    {"model.preset", "model.from"},
    {"placement.preset", "placement.weights"},
    {"placement.preset", "placement.secondary"},
    {"placement.preset", "placement.gradients"},
    {"placement.preset", "placement.optimizer"},
    {"data.validation", "data.split"},
};
/// A key that, given in a higher layer, displaces another.
constexpr std::pair<std::string_view, std::string_view> displacing[] = {
    {"model.bias", "model.attention_bias"},
    {"model.bias", "model.mlp_bias"},
};

std::string joined(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

bool is_section(std::string_view name) {
  for (const Key& key : key_table())
    if (key.name.size() > name.size() && key.name[name.size()] == '.' && key.name.starts_with(name)) return true;
  return false;
}

/// " (did you mean ...?)" for a name that is no key, in the section `prefix`.
std::string suggestion(std::string_view prefix, std::string_view name) {
  std::vector<std::string> siblings, all;
  for (const Key& key : key_table()) {
    all.push_back(key.name);
    std::string_view rest = key.name;
    // The right name in the wrong section is the likeliest slip.
    if (rest.substr(rest.rfind('.') + 1) == name) return fmt::format(" (did you mean \"{}\"?)", key.name);
    if (!prefix.empty()) {
      if (!rest.starts_with(fmt::format("{}.", prefix))) continue;
      rest.remove_prefix(prefix.size() + 1);
    }
    const std::string sibling(rest.substr(0, rest.find('.')));
    if (siblings.empty() || siblings.back() != sibling) siblings.push_back(sibling);
  }
  if (const std::string near = nearest(name, siblings); !near.empty())
    return fmt::format(" (did you mean \"{}\"?)", joined(prefix, near));
  return did_you_mean(joined(prefix, name), all);
}

class Loader {
 public:
  Loader(fs::path path) : path_(std::move(path)) {}

  Job load(std::string_view text, std::span<const std::string> sets) {
    add_file(file_layer, path_, text, "");
    add_options(sets);
    add_preset();
    for (int layer : {preset_layer, file_layer, option_layer}) merge(layer);
    Job job = settle();
    finish(job);
    return job;
  }

  /// The dimensions in a file of models/ alone.
  model::Config preset_only(std::string_view text) {
    add_file(preset_layer, path_, text, "model");
    merge(preset_layer);
    Job job = settle();
    finish_model(job);
    return job.model;
  }

 private:
  // ---- reading layers ----

  void add_file(int layer, const fs::path& path, std::string_view text, std::string_view only_section) {
    Origin& origin = origins_.emplace_back();
    origin.label = path.string();
    origin.base = fs::absolute(path).lexically_normal().parent_path();
    toml::table& table = documents_.emplace_back(parse_toml(text, origin.label));
    if (!only_section.empty())
      for (auto&& [key, value] : table)
        if (key.str() != only_section)
          throw input_error("{}:{}: {}: a preset holds only [{}]", origin.label, key.source().begin.line, key.str(),
                            only_section);
    collect_members(layer, origin, "", table);
  }

  static toml::table parse_toml(std::string_view text, const std::string& label) {
    try {
      return toml::parse(text, label);
    } catch (const toml::parse_error& error) {
      const std::string_view what = error.description();
      const bool twice = what.find("cannot redefine") != std::string_view::npos;
      throw input_error("{}:{}: {}{}", label, error.source().begin.line, what,
                        twice ? "; a key or section can be given only once" : "");
    }
  }

  void add_options(std::span<const std::string> sets) {
    for (const std::string& set : sets) {
      Origin& origin = origins_.emplace_back();
      origin.label = "--set " + set;
      origin.base = fs::current_path();
      origin.option = true;
      const size_t equals = set.find('=');
      const auto trimmed = [](std::string_view part) {
        const size_t first = part.find_first_not_of(" \t"), last = part.find_last_not_of(" \t");
        return first == std::string_view::npos ? std::string_view() : part.substr(first, last - first + 1);
      };
      const std::string name(trimmed(std::string_view(set).substr(0, equals)));
      if (equals == std::string::npos || name.empty())
        throw input_error("{}: must be of the form a.b=c, such as --set batch.micro=4", origin.label);
      try {
        static_cast<void>(Json(set).dump());
      } catch (const Json::exception&) {
        throw input_error("--set {}=...: the value is not UTF-8 text", name);
      }
      const std::string raw(trimmed(std::string_view(set).substr(equals + 1)));
      const toml::node& value = option_value(raw, origin);
      const size_t dot = name.rfind('.');
      const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
      collect(option_layer, origin, section, dot == std::string::npos ? name : name.substr(dot + 1), value, 0, &raw);
    }
  }

  /// A TOML value if it is one, else a bare string.
  const toml::node& option_value(const std::string& raw, const Origin& origin) {
    try {
      toml::table table = toml::parse("value = " + raw);
      if (table.size() == 1 && table.contains("value")) return *documents_.emplace_back(std::move(table)).get("value");
    } catch (const toml::parse_error& error) {
      // What opens like a TOML value was meant as one.
      if (!raw.empty() && std::string_view("[{\"'").find(raw[0]) != std::string_view::npos)
        throw input_error("{}: {}", origin.label, error.description());
    }
    return *documents_.emplace_back(toml::table{{"value", raw}}).get("value");
  }

  void collect_members(int layer, const Origin& origin, std::string_view prefix, const toml::table& table) {
    for (auto&& [key, value] : table)
      collect(layer, origin, prefix, key.str(), value, static_cast<int>(key.source().begin.line), nullptr);
  }

  /// Takes in the value of `prefix`.`name`, or each member of it if it is a section. `raw`: the text of a bare option.
  void collect(int layer, const Origin& origin, std::string_view prefix, std::string_view name, const toml::node& node,
               int line, const std::string* raw) {
    const std::string full = joined(prefix, name);
    Given given{full, &node, &origin, line, layer};
    const bool dotted = name.find('.') != std::string_view::npos;  // a quoted key with a dot in it
    const Key* key = dotted ? nullptr : find_key(full);
    if (key) {
      // A bare 2024 or true is a string where only a string makes sense.
      if (raw && key->text && !node.is_string() && !node.is_array() && !node.is_table())
        given.node = documents_.emplace_back(toml::table{{"value", *raw}}).get("value");
      layers_[static_cast<size_t>(layer)].insert_or_assign(full, given);
    } else if (!dotted && is_section(full)) {
      if (!node.is_table()) {
        const std::string example = origin.option    ? full + ".KEY"
                                    : prefix.empty() ? "[" + full + "]"
                                                     : full + " = { ... }";
        throw input_error("{}: is a table of keys ({}), not a value", given.where(), example);
      }
      collect_members(layer, origin, full, *node.as_table());
    } else {
      // A quoted key can hold anything; what could upset a terminal is shown escaped.
      if (name.empty() || std::any_of(name.begin(), name.end(),
                                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
        given.name = files::shown(full);
      for (const Key& whole : key_table())
        if (full.starts_with(whole.name + "."))
          throw input_error("{}: {} is given whole ({})", given.where(), whole.name, whole.type);
      throw input_error("{}: unknown key{}", given.where(), suggestion(prefix, name));
    }
  }

  // ---- merging ----

  const Given* find(std::string_view name) const {
    const auto found = merged_.find(name);
    return found == merged_.end() ? nullptr : &found->second;
  }

  /// "job.toml:12: key", or the file alone if the key was not given.
  std::string where(std::string_view name) const {
    const Given* given = find(name);
    return given ? given->where() : fmt::format("{}: {}", path_.string(), name);
  }

  void add_preset() {
    const Merged &options = layers_[option_layer], &file = layers_[file_layer];
    const auto source = [&](const Merged& layer) {
      for (const char* name : {"model.preset", "model.from"})
        if (const auto found = layer.find(name); found != layer.end()) return &found->second;
      return static_cast<const Given*>(nullptr);
    };
    const Given* chosen = source(options);
    if (chosen) {
      // Dimensions in the file would override the preset that the option asks for, and leave a mixture.
      for (const char* name : {"model.family", "model.layers", "model.hidden", "model.heads"})
        if (const auto found = file.find(name); found != file.end())
          throw input_error(
              "{}: {} gives the model's dimensions and would override it; remove them there, or set them too",
              chosen->where(), found->second.where());
    } else {
      chosen = source(file);
    }
    if (!chosen || chosen->name != "model.preset") return;
    Job scratch;
    find_key("model.preset")->set(scratch, *chosen);
    const fs::path preset = preset_file(scratch.model.preset, chosen->where());
    add_file(preset_layer, preset, files::read_text(preset), "model");
    for (const char* name : {"model.preset", "model.from"})
      if (const auto found = layers_[preset_layer].find(name); found != layers_[preset_layer].end())
        throw input_error("{}: a preset cannot build on another", found->second.where());
  }

 public:
  static fs::path preset_file(const std::string& name, const std::string& where) {
    if (name.find('/') != std::string::npos || name.ends_with(".toml")) return name;
    const fs::path found = find_shipped("models", name);
    if (found.empty()) {
      const std::vector<std::string> names = shipped_names("models");
      std::string list;
      for (const std::string& each : names) list += (list.empty() ? "" : ", ") + each;
      throw input_error("{}: there is no preset \"{}\"{}; known: {}", where, name, did_you_mean(name, names),
                        list.empty() ? "none (set STRATA_HOME to the folder that holds models/)" : list);
    }
    return found;
  }

 private:
  void merge(int index) {
    const Merged& layer = layers_[static_cast<size_t>(index)];
    const auto displace = [&](std::string_view winner, std::string_view loser) {
      if (!layer.contains(winner)) return;
      if (const auto found = merged_.find(loser); found != merged_.end() && found->second.layer < index)
        merged_.erase(found);
    };
    for (const auto& [one, other] : rivals) {
      const auto first = layer.find(one), second = layer.find(other);
      if (first != layer.end() && second != layer.end())
        throw input_error("{}: cannot be given together with {} ({}); keep one of them", second->second.where(), one,
                          first->second.place());
      displace(one, other), displace(other, one);
    }
    for (const auto& [winner, loser] : displacing) displace(winner, loser);
    for (const auto& [name, given] : layer) merged_.insert_or_assign(name, given);
    // Each layer is checked alone, so that a value which a higher one displaces is a legal one still.
    Job job;
    apply(job);
  }

  /// Writes the merged values into a job, in the order of the table.
  void apply(Job& job) const {
    for (const Key& key : key_table())
      if (const Given* given = find(key.name)) key.set(job, *given);
  }

  /// The job that all layers come to.
  Job settle() {
    for (;;) {
      Job job;
      if (const Given* from = find("model.from")) read_folder(job, *from);
      if (const Given* family = find("model.family")) {
        const model::Family found = job.model.family;
        find_key("model.family")->set(job, *family);
        if (job.model_from.empty())
          set_family(job.model, job.model.family);
        else if (job.model.family != found)
          throw input_error("{}: {} holds a model of family {}", family->where(), job.model_from,
                            model::name_of(found));
      }
      apply(job);
      if (first_state()) {
        job.placement.preset.clear();
        for (std::string Placement::*state :
             {&Placement::weights, &Placement::secondary, &Placement::gradients, &Placement::optimizer})
          if ((job.placement.*state).empty()) job.placement.*state = "none";
      }
      if (!drop_inapplicable(job)) return job;
    }
  }

  /// Whether a key was taken out because a higher layer changed what it depends on; then all is applied anew.
  bool drop_inapplicable(const Job& job) {
    bool dropped = false;
    for (const Key& key : key_table()) {
      const Given* given = find(key.name);
      if (!given || !key.applies || key.applies(job)) continue;
      const Given* cause = find(key.depends);
      if (key.depends.starts_with("placement.") && job.placement.preset.empty()) cause = first_state();
      if (!cause || cause->layer <= given->layer) throw input_error("{}: only for {}", given->where(), key.only);
      merged_.erase(key.name);
      dropped = true;
    }
    return dropped;
  }

  const Given* first_state() const {
    for (const char* name : {"placement.weights", "placement.secondary", "placement.gradients", "placement.optimizer"})
      if (const Given* given = find(name)) return given;
    return nullptr;
  }

  void read_folder(Job& job, const Given& from) {
    find_key("model.from")->set(job, from);
    const fs::path file = fs::path(job.model_from) / "config.json";
    std::error_code error;
    if (!fs::is_regular_file(file, error))
      throw input_error("{}: {} is missing; a Hugging Face model folder is wanted", from.where(), file.string());
    job.model = model::from_hf_config(files::read_text(file), file.string());
  }

  // ---- rules between keys ----

  void finish(Job& job) {
    for (const Key& key : key_table())
      if (key.required && !find(key.name))
        throw input_error("{}: {} is missing; it is required: {}", path_.string(), key.name, key.doc);
    finish_model(job);
    finish_batch(job);
    finish_mesh(job);
    finish_placement(job);
    finish_precision(job);
    finish_optimizer(job);
    finish_run(job);
  }

  void finish_model(Job& job) {
    model::Config& config = job.model;
    if (job.model_from.empty()) {
      std::string missing;
      const auto need = [&](const char* name, bool given) {
        if (!given) missing += (missing.empty() ? "" : ", ") + std::string(name);
      };
      need("family", find("model.family"));
      need("layers", config.layers);
      need("hidden", config.hidden);
      need("heads", config.heads);
      if (config.family == model::Family::llama) need("ffn", config.ffn);
      need("vocab", config.vocab);
      need("sequence", config.sequence);
      if (!missing.empty())
        throw input_error("{}: [model] lacks {}{}", path_.string(), missing,
                          find("model.preset") || layers_[file_layer].empty()
                              ? ""
                              : "; or give preset = \"NAME\", or from = \"HUGGING FACE FOLDER\"");
    }
    if (config.kv_heads == 0) config.kv_heads = config.heads;
    if (config.head_dim == 0) {
      if (config.hidden % config.heads != 0)
        throw input_error("{}: hidden {} / heads {} is not whole; change one of them, or give head_dim",
                          where("model.heads"), config.hidden, config.heads);
      config.head_dim = config.hidden / config.heads;
    }
    if (config.ffn == 0) config.ffn = 4 * config.hidden;

    std::string place = path_.string();
    for (const auto& [name, given] : merged_)
      if (given.layer == option_layer && name.starts_with("model.")) place += " with " + given.place();
    model::validate(config, place + ": [model]");
  }

  void finish_batch(Job& job) const {
    Batch& batch = job.batch;
    if (batch.sequence == 0) batch.sequence = job.model.sequence;
    if (batch.sequence > job.model.sequence)
      throw input_error("{}: {} tokens are longer than model.sequence = {}; give at most that, or raise model.sequence",
                        where("batch.sequence"), batch.sequence, job.model.sequence);
    // No number of ranks can mend this one: report it with the arithmetic of a single data-parallel rank.
    if (batch.global % batch.micro != 0)
      static_cast<void>(resolve_batch(job, job.mesh.tensor * job.mesh.pipeline, path_.string()));
  }

  void finish_mesh(Job& job) const {
    std::vector<machine::Level>& levels = job.mesh.levels;
    if (!levels.empty() && levels[0].name.empty()) {
      const auto usual = machine::usual_level_names();
      if (levels.size() != usual.size())
        throw input_error(
            "{}: {} levels have no usual names (three have: package, node, system); give mesh.level_names",
            where("mesh.levels"), levels.size());
      for (size_t i = 0; i < levels.size(); ++i) levels[i].name = usual[i];
    }
    static_cast<void>(chunk_units(job, where(job.schedule.layout.empty() ? "mesh.pipeline" : "schedule.layout")));
  }

  void finish_placement(Job& job) const {
    Placement& placement = job.placement;
    if (takes_level(placement.preset) && placement.level.empty()) placement.level = "node";
    std::vector<std::string> names = level_names(job);
    if (names.empty()) {
      // The machine's file names the levels; until it is read, only the usual names can be checked.
      names.assign(machine::usual_level_names().begin(), machine::usual_level_names().end());
      for (const std::string& name : named_levels(placement))
        if (std::find(names.begin(), names.end(), name) == names.end()) return;
    }
    std::string place = path_.string();
    for (const auto& [name, given] : merged_)
      if (given.layer == option_layer && name.starts_with("placement.")) place += " with " + given.place();
    static_cast<void>(resolve_placement(job, names, place));
  }

  static std::vector<std::string> named_levels(const Placement& placement) {
    std::vector<std::string> names;
    for (const std::string& state : {placement.weights, placement.secondary, placement.gradients, placement.optimizer,
                                     takes_level(placement.preset) ? placement.level : ""})
      if (!state.empty() && state != "none" && state != "all") names.push_back(state);
    for (const WireChoice& wires : placement.wires)
      for (const auto& [level, wire] : wires.at) names.push_back(level);
    for (const HopPlan& plan : placement.hops)
      for (const auto& hop : plan) names.insert(names.end(), hop.begin(), hop.end());
    return names;
  }

  void finish_precision(Job& job) const {
    if (!find("precision.gradients"))
      job.precision.gradients = job.precision.compute == DType::f32 ? DType::f32 : DType::bf16;
    if (job.precision.compute == DType::f32 && job.precision.gradients != DType::f32)
      throw input_error(
          "{}: gradients of fp32 runs travel as fp32; to send them as bf16, give placement.wires.gradients = "
          "\"bf16\"",
          where("precision.gradients"));
  }

  void finish_optimizer(const Job& job) const {
    const Optimizer& optimizer = job.optimizer;
    if (ops::grain % optimizer.block != 0 || optimizer.block % 64 != 0)
      throw input_error("{}: {} is not a multiple of 64 that divides {}", where("optimizer.block"), optimizer.block,
                        ops::grain);
    const optim::Schedule& schedule = optimizer.schedule;
    const int64_t steps = job.run.steps;
    if (schedule.min_lr > optimizer.lr)
      throw input_error("{}: {} is above optimizer.lr = {}", where("optimizer.schedule.min_lr"), schedule.min_lr,
                        optimizer.lr);
    const int64_t warmup = optim::steps_of(schedule.warmup, steps);
    if (warmup > steps)
      throw input_error("{}: {} steps of warm-up in a run of {} (run.steps)", where("optimizer.schedule.warmup"),
                        warmup, steps);
    if (schedule.shape != optim::Shape::wsd) return;
    const int64_t decay = optim::steps_of(schedule.decay, steps);
    if (decay > steps - warmup)
      throw input_error("{}: {} steps of warm-up and {} of decay do not fit a run of {} (run.steps)",
                        where("optimizer.schedule.decay"), warmup, decay, steps);
  }

  void finish_run(const Job& job) const {
    for (int64_t step : job.run.trace)
      if (step > job.run.steps)
        throw input_error("{}: there is no step {} in a run of {} (run.steps)", where("run.trace"), step,
                          job.run.steps);
    if (job.run.validate.every == 0 || job.data.train.empty()) return;
    const bool share = job.data.split.size() >= 2 && job.data.split[1] > 0;
    if (job.data.validation.empty() && !share)
      throw input_error("{}: there is nothing to validate on; give data.validation or data.split, or every = 0",
                        where("run.validate.every"));
  }

  fs::path path_;
  std::list<Origin> origins_;  // lists: Given points into both
  std::list<toml::table> documents_;
  std::array<Merged, 3> layers_;
  Merged merged_;
};

}  // namespace

Job parse(std::string_view text, const fs::path& path, std::span<const std::string> sets) {
  return Loader(path).load(text, sets);
}

Job load(const fs::path& path, std::span<const std::string> sets) { return parse(files::read_text(path), path, sets); }

model::Config load_preset(const std::string& name_or_path) {
  const fs::path path = Loader::preset_file(name_or_path, "preset");
  model::Config config = Loader(path).preset_only(files::read_text(path));
  config.preset = name_or_path;
  return config;
}

}  // namespace strata::job
