#include "job/keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/text.h"
#include "job/key.h"
#include "job/placement.h"
#include "ops/op.h"

namespace strata::job {

namespace {

// ---- reading values ----

std::string described(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("the string {}", toml_text(Json(text->get())));
  if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date or time";
}

/// An element or member of the value of a key: its own name and line.
struct Spot {
  const Given& given;
  const toml::node& node;
  std::string name;

  [[noreturn]] void fail(const std::string& message) const {
    throw input_error("{}: {}: {}", given.place(static_cast<int>(node.source().begin.line)), name, message);
  }
  [[noreturn]] void mistyped(std::string_view wanted) const {
    fail(fmt::format("must be {}, not {}", wanted, described(node)));
  }
  Spot inside(const toml::node& child, const std::string& suffix) const { return {given, child, name + suffix}; }
};

Spot spot(const Given& given) { return {given, *given.node, given.name}; }

struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;

  bool hold(double value) const {
    return std::isfinite(value) && (low_open ? value > low : value >= low) &&
           (high_open ? value < high : value <= high);
  }
  std::string text() const {
    const std::string least = fmt::format("{} {:.16g}", low_open ? "above" : "at least", low);
    if (std::isinf(high)) return std::isinf(low) ? "finite" : least + " and finite";
    return fmt::format("{} and {} {:.16g}", least, high_open ? "below" : "at most", high);
  }
};

constexpr double largest_count = 2147483647;  // so that products of two counts fit 64 bits
constexpr Bounds count = {.low = 1, .high = largest_count};
constexpr Bounds count_or_none = {.low = 0, .high = largest_count};
constexpr Bounds long_count = {.low = 1, .high = 1e15};
constexpr Bounds positive = {.low = 0, .low_open = true};
constexpr Bounds non_negative = {.low = 0};
constexpr Bounds below_one = {.low = 0, .high = 1, .high_open = true};

int64_t read_whole(const Spot& at, const Bounds& bounds) {
  const auto* integer = at.node.as_integer();
  if (!integer) at.mistyped("a whole number");
  // In integers: beyond 2^53 a double would round into the bounds.
  const int64_t value = integer->get();
  if (value < static_cast<int64_t>(bounds.low) || value > static_cast<int64_t>(bounds.high))
    at.fail(fmt::format("{} must be {}", value, bounds.text()));
  return value;
}

double read_number(const Spot& at, const Bounds& bounds) {
  double value = 0;
  if (const auto* real = at.node.as_floating_point())
    value = real->get();
  else if (const auto* integer = at.node.as_integer())
    value = static_cast<double>(integer->get());
  else
    at.mistyped("a number");
  if (!bounds.hold(value)) at.fail(fmt::format("{} must be {}", value, bounds.text()));
  return value;
}

/// A share below 1 or a number of steps.
double read_length(const Spot& at) {
  const double value = read_number(at, {.low = 0, .high = 1e15});
  if (value >= 1 && value != std::floor(value))
    at.fail(fmt::format("{} must be a share below 1 or a whole number of steps", value));
  return value;
}

const std::string& read_string(const Spot& at) {
  const auto* text = at.node.as_string();
  if (!text) at.mistyped("a string");
  return text->get();
}

const std::string& read_name(const Spot& at) {
  const std::string& text = read_string(at);
  if (text.empty()) at.fail("must not be empty");
  return text;
}

std::string absolute(const Spot& at, const std::string& path) {
  if (path.empty()) return path;
  return (at.given.origin->base / path).lexically_normal().string();
}

const toml::array& read_list(const Spot& at, std::string_view wanted) {
  const auto* list = at.node.as_array();
  if (!list) at.mistyped(wanted);
  return *list;
}

std::vector<std::string> read_names(const Spot& at, std::string_view wanted) {
  std::vector<std::string> names;
  for (const toml::node& item : read_list(at, wanted))
    names.push_back(read_name(at.inside(item, fmt::format("[{}]", names.size()))));
  return names;
}

template <typename E>
std::vector<std::string> spellings(const std::vector<E>& values) {
  std::vector<std::string> names;
  for (E value : values) names.emplace_back(name_of(value));
  return names;
}

std::string either(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}\"{}\"", text.empty() ? "" : " | ", name);
  return text;
}

size_t read_index(const Spot& at, const std::vector<std::string>& names) {
  const auto* text = at.node.as_string();
  if (!text) at.mistyped("one of " + either(names));
  const auto found = std::find(names.begin(), names.end(), text->get());
  if (found == names.end())
    at.fail(fmt::format("\"{}\" is not one of {}{}", text->get(), either(names), did_you_mean(text->get(), names)));
  return static_cast<size_t>(found - names.begin());
}

/// Refuses members of a table that are not in `names`.
const toml::table& read_table(const Spot& at, std::string_view wanted, const std::vector<std::string>& names) {
  const auto* table = at.node.as_table();
  if (!table) at.mistyped(wanted);
  for (auto&& [key, value] : *table) {
    const std::string name(key.str());
    if (std::find(names.begin(), names.end(), name) == names.end())
      at.inside(value, "." + name).fail("unknown key" + did_you_mean(name, names));
  }
  return *table;
}

// ---- kinds of rows; a field is a generic lambda from a job to its member ----

#define AT(member) \
  [](auto& job) -> auto& { return job.member; }

template <typename Field>
Key whole(std::string name, std::string fallback, std::string doc, Field field, Bounds bounds) {
  return {std::move(name),
          "whole number",
          std::move(fallback),
          std::move(doc),
          [=](Job& job, const Given& given) {
            auto& target = field(job);
            target = static_cast<std::remove_reference_t<decltype(target)>>(read_whole(spot(given), bounds));
          },
          [=](const Job& job) { return Json(field(job)); }};
}

/// A whole number that zero stands for "not settled yet".
template <typename Field>
Key dimension(std::string name, std::string fallback, std::string doc, Field field) {
  Key key = whole(std::move(name), std::move(fallback), std::move(doc), field, count);
  key.get = [=](const Job& job) { return field(job) == 0 ? Json() : Json(field(job)); };
  return key;
}

template <typename Field>
Key number(std::string name, std::string fallback, std::string doc, Field field, Bounds bounds) {
  return {std::move(name),
          "number",
          std::move(fallback),
          std::move(doc),
          [=](Job& job, const Given& given) { field(job) = read_number(spot(given), bounds); },
          [=](const Job& job) { return Json(field(job)); }};
}

template <typename Field>
Key length(std::string name, std::string doc, Field field) {
  return {std::move(name), "number", "", std::move(doc),
          [=](Job& job, const Given& given) { field(job) = read_length(spot(given)); },
          // Whole steps are shown as such.
          [=](const Job& job) {
            const double value = field(job);
            return value == std::floor(value) && value < 1e15 ? Json(static_cast<int64_t>(value)) : Json(value);
          }};
}

template <typename Field>
Key flag(std::string name, std::string fallback, std::string doc, Field field) {
  return {std::move(name),
          "true | false",
          std::move(fallback),
          std::move(doc),
          [=](Job& job, const Given& given) {
            const auto* boolean = given.node->as_boolean();
            if (!boolean) spot(given).mistyped("true or false");
            field(job) = boolean->get();
          },
          [=](const Job& job) { return Json(field(job)); }};
}

/// One of several names, which stand for `values` in order.
template <typename E, typename Field>
Key choice(std::string name, std::string fallback, std::string doc, Field field, std::vector<std::string> names,
           std::vector<E> values) {
  Key key{std::move(name),
          either(names),
          std::move(fallback),
          std::move(doc),
          [=](Job& job, const Given& given) { field(job) = values[read_index(spot(given), names)]; },
          [=](const Job& job) {
            const auto found = std::find(values.begin(), values.end(), field(job));
            return found == values.end() ? Json() : Json(names[static_cast<size_t>(found - values.begin())]);
          }};
  key.text = true;
  return key;
}

template <typename E, typename Field>
Key choice(std::string name, std::string doc, Field field, std::vector<E> values) {
  return choice<E>(std::move(name), "", std::move(doc), field, spellings(values), values);
}

enum class Empty : uint8_t { allowed, refused };

template <typename Field>
Key text(std::string name, std::string type, std::string fallback, std::string doc, Field field, Empty empty) {
  Key key{std::move(name),
          std::move(type),
          std::move(fallback),
          std::move(doc),
          [=](Job& job, const Given& given) {
            field(job) = empty == Empty::allowed ? read_string(spot(given)) : read_name(spot(given));
          },
          [=](const Job& job) { return field(job).empty() ? Json() : Json(field(job)); }};
  key.text = true;
  return key;
}

template <typename Field>
Key path(std::string name, std::string fallback, std::string doc, Field field, Empty empty) {
  Key key = text(std::move(name), "path", std::move(fallback), std::move(doc), field, empty);
  key.set = [=](Job& job, const Given& given) {
    const Spot at = spot(given);
    field(job) = absolute(at, empty == Empty::allowed ? read_string(at) : read_name(at));
  };
  return key;
}

/// Names of shipped files, or paths of such files of one's own.
bool is_path(std::string_view name) { return name.find('/') != std::string_view::npos || name.ends_with(".toml"); }

template <typename Field>
Key name_or_path(std::string name, std::string fallback, std::string doc, Field field, Empty empty) {
  Key key = text(std::move(name), "name or path", std::move(fallback), std::move(doc), field, empty);
  key.set = [=](Job& job, const Given& given) {
    const Spot at = spot(given);
    const std::string value = empty == Empty::allowed ? read_string(at) : read_name(at);
    field(job) = is_path(value) ? absolute(at, value) : value;
  };
  return key;
}

template <typename Set, typename Get>
Key custom(std::string name, std::string type, std::string fallback, std::string doc, Set set, Get get) {
  return {std::move(name),
          std::move(type),
          std::move(fallback),
          std::move(doc),
          [=](Job& job, const Given& given) { set(job, spot(given)); },
          get};
}

// ---- keys with a form of their own ----

/// A path, or the word for tokens that are bytes (data/tokenizer.h).
Key tokenizer_key() {
  const auto field = AT(data.tokenizer);
  Key key = path("data.tokenizer", "none", "Tokenizer file or folder that made the token files; \"bytes\": none did",
                 field, Empty::allowed);
  key.set = [=](Job& job, const Given& given) {
    const Spot at = spot(given);
    const std::string value = read_string(at);
    field(job) = value == "bytes" ? value : absolute(at, value);
  };
  return key;
}

Key train_key() {
  return custom(
      "data.train", "list of { path, weight }", "none",
      "Token files (prefix of .bin and .idx), mixed in proportion to their weights (1 if not given)",
      [](Job& job, const Spot& at) {
        job.data.train.clear();
        for (const toml::node& item : read_list(at, "a list of { path = \"...\", weight = 1.0 }")) {
          const Spot one = at.inside(item, fmt::format("[{}]", job.data.train.size()));
          const toml::table& table = read_table(one, "{ path = \"...\", weight = 1.0 }", {"path", "weight"});
          const toml::node *file = table.get("path"), *weight = table.get("weight");
          if (!file) one.fail("path is missing");
          const Spot path_at = one.inside(*file, ".path");
          Data::Source source{absolute(path_at, read_name(path_at)), 1};
          if (weight) source.weight = read_number(one.inside(*weight, ".weight"), positive);
          job.data.train.push_back(std::move(source));
        }
      },
      [](const Job& job) {
        if (job.data.train.empty()) return Json();
        Json list = Json::array();
        for (const Data::Source& source : job.data.train)
          list.push_back(Json{{"path", source.path}, {"weight", source.weight}});
        return list;
      });
}

/// The numbers of "969,30,1", as Megatron-LM takes them.
std::vector<double> read_numbers(const Spot& at, std::string_view text) {
  std::vector<double> numbers;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    word = word.substr(0, word.find_last_not_of(' ') + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size() || !non_negative.hold(value))
      at.fail(fmt::format("\"{}\" is not a number from 0 up", word));
    numbers.push_back(value);
    if (comma == text.size()) return numbers;
    text.remove_prefix(comma + 1);
  }
}

Key split_key() {
  return custom(
      "data.split", "list of 2 or 3 numbers, or such as \"969,30,1\"", "all for training",
      "Shares of data.train's documents for training, validation and testing, in that order and any unit; instead of "
      "data.validation",
      [](Job& job, const Spot& at) {
        job.data.split.clear();
        if (const auto* text = at.node.as_string()) {
          job.data.split = read_numbers(at, text->get());
        } else {
          for (const toml::node& item : read_list(at, "a list of two or three numbers"))
            job.data.split.push_back(
                read_number(at.inside(item, fmt::format("[{}]", job.data.split.size())), non_negative));
        }
        if (job.data.split.size() != 2 && job.data.split.size() != 3) at.fail("must be a list of two or three numbers");
        if (job.data.split[0] == 0) at.fail("leaves nothing for training");
        double sum = 0;
        for (double share : job.data.split) sum += share;
        if (!std::isfinite(sum)) at.fail("the sum of the shares must be finite");
      },
      [](const Job& job) { return job.data.split.empty() ? Json() : Json(job.data.split); });
}

Key trace_key() {
  return custom(
      "run.trace", "list of step numbers", "",
      "Steps, from 1, whose timeline on all ranks is written to run.folder as trace-step-N.json, for Perfetto",
      [](Job& job, const Spot& at) {
        job.run.trace.clear();
        for (const toml::node& item : read_list(at, "a list of step numbers"))
          job.run.trace.push_back(read_whole(at.inside(item, fmt::format("[{}]", job.run.trace.size())), long_count));
      },
      [](const Job& job) { return Json(job.run.trace); });
}

// A list of numbers and "*" has no names; both keys write the same levels, so they may come in either order.
Key levels_key() {
  return custom(
      "mesh.levels", "list of whole numbers, the last may be \"*\"", "from run.machine, else detected",
      "Widths of the machine's levels, innermost first; \"*\": as many as the ranks need",
      [](Job& job, const Spot& at) {
        const toml::array& list = read_list(at, "a list such as [2, 4, \"*\"]");
        if (list.empty()) at.fail("must name at least one level");
        job.mesh.levels.resize(list.size());
        for (size_t i = 0; i < list.size(); ++i) {
          const Spot one = at.inside(list[i], fmt::format("[{}]", i));
          if (const auto* star = list[i].as_string(); star && star->get() == "*") {
            if (i + 1 != list.size()) one.fail("only the last (outermost) width can be \"*\"");
            job.mesh.levels[i].width = 0;
          } else {
            if (!list[i].is_integer()) one.mistyped("a whole number or \"*\"");
            job.mesh.levels[i].width = read_whole(one, count);
          }
        }
      },
      [](const Job& job) {
        if (job.mesh.levels.empty()) return Json();
        Json list = Json::array();
        for (const machine::Level& level : job.mesh.levels)
          list.push_back(level.width == 0 ? Json("*") : Json(level.width));
        return list;
      });
}

Key level_names_key() {
  return custom(
      "mesh.level_names", "list of names", "package, node, system if there are three levels",
      "Names of mesh.levels, innermost first; required unless there are three",
      [](Job& job, const Spot& at) {
        const std::vector<std::string> names = read_names(at, "a list of names");
        if (names.size() != job.mesh.levels.size())
          at.fail(job.mesh.levels.empty() ? "needs mesh.levels"
                                          : fmt::format("has {} names for the {} levels of mesh.levels", names.size(),
                                                        job.mesh.levels.size()));
        for (size_t i = 0; i < names.size(); ++i) {
          if (names[i] == "none" || names[i] == "all" || names[i] == "*")
            at.fail(fmt::format("\"{}\" cannot name a level: it has a meaning of its own", names[i]));
          if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
              names.begin() + static_cast<ptrdiff_t>(i))
            at.fail(fmt::format("\"{}\" names two levels", names[i]));
          job.mesh.levels[i].name = names[i];
        }
      },
      [](const Job& job) {
        Json list = Json::array();
        for (const machine::Level& level : job.mesh.levels) list.push_back(level.name);
        return list.empty() ? Json() : list;
      });
}

Key order_key() {
  return custom(
      "mesh.order", "list of the three names", "",
      "Which ranks are neighbours, innermost first: tensor, data and pipeline in some order",
      [](Job& job, const Spot& at) {
        const std::vector<std::string> names = read_names(at, "a list of \"tensor\", \"data\" and \"pipeline\"");
        std::vector<std::string> sorted = names;
        std::sort(sorted.begin(), sorted.end());
        if (sorted != std::vector<std::string>{"data", "pipeline", "tensor"})
          at.fail("must hold \"tensor\", \"data\" and \"pipeline\", each once");
        std::copy(names.begin(), names.end(), job.mesh.order.begin());
      },
      [](const Job& job) { return Json(job.mesh.order); });
}

constexpr Purpose all_purposes[] = {Purpose::weights, Purpose::gradients, Purpose::reduction, Purpose::update};

Key wire_key(Purpose purpose, std::string doc) {
  const auto index = static_cast<size_t>(purpose);
  const std::vector<Wire> wires = {Wire::full, Wire::fp32, Wire::bf16, Wire::int8, Wire::int4};
  const std::vector<std::string> names = spellings(wires);
  Key key = custom(
      fmt::format("placement.wires.{}", name_of(purpose)), either(names) + ", or a table of level = wire",
      "as the preset says, else \"full\"", std::move(doc),
      [=](Job& job, const Spot& at) {
        WireChoice& wire_choice = job.placement.wires[index];
        wire_choice = {};
        if (const auto* table = at.node.as_table()) {
          for (auto&& [level, value] : *table)
            wire_choice.at[std::string(level.str())] =
                wires[read_index(at.inside(value, fmt::format(".{}", level.str())), names)];
        } else {
          if (!at.node.is_string()) at.mistyped("one of " + either(names) + ", or a table such as { node = \"int8\" }");
          wire_choice.everywhere = wires[read_index(at, names)];
        }
      },
      [=](const Job& job) {
        const WireChoice& wire_choice = job.placement.wires[index];
        if (wire_choice.everywhere) return Json(name_of(*wire_choice.everywhere));
        if (wire_choice.at.empty()) return Json();
        Json table = Json::object();
        for (const auto& [level, wire] : wire_choice.at) table[level] = name_of(wire);
        return table;
      });
  return key;
}

Key block_key(std::string_view wire, int64_t Placement::*member) {
  return custom(
      fmt::format("placement.wires.{}_block", wire), "whole number", "",
      fmt::format("Elements of an {} wire that share a scale; a divisor of {}", wire, ops::grain),
      [=](Job& job, const Spot& at) {
        const int64_t block = read_whole(at, {.low = 64, .high = static_cast<double>(ops::grain)});
        if (ops::grain % block != 0)
          at.fail(fmt::format("{} must divide the grain of {} elements, so that blocks never straddle two shards",
                              block, ops::grain));
        job.placement.*member = block;
      },
      [=](const Job& job) { return Json(job.placement.*member); });
}

HopPlan read_hops(const Spot& at) {
  HopPlan plan;
  std::vector<std::string> seen;
  constexpr std::string_view wanted = "a list of lists of levels, such as [[\"package\", \"node\"], [\"system\"]]";
  for (const toml::node& item : read_list(at, wanted)) {
    const Spot hop = at.inside(item, fmt::format("[{}]", plan.size()));
    plan.push_back(read_names(hop, "a list of levels"));
    if (plan.back().empty()) hop.fail("must name at least one level");
    for (const std::string& level : plan.back()) {
      if (std::find(seen.begin(), seen.end(), level) != seen.end())
        hop.fail(fmt::format("level \"{}\" is crossed twice", level));
      seen.push_back(level);
    }
  }
  if (plan.empty()) at.fail("must hold at least one hop");
  return plan;
}

Key hops_key() {
  return custom(
      "placement.hops", "list of lists of levels, or a table of purpose = such a list",
      "as the preset says, else one hop a level",
      "Levels crossed by one transfer each, e.g. { gradients = [[\"package\", \"node\"], [\"system\"]] }; a bare list "
      "is for "
      "all purposes",
      [](Job& job, const Spot& at) {
        job.placement.hops = {};
        if (at.node.is_table()) {
          std::vector<std::string> names;
          for (Purpose purpose : all_purposes) names.emplace_back(name_of(purpose));
          for (auto&& [purpose, plan] : read_table(at, "a table", names)) {
            const auto index = std::find(names.begin(), names.end(), purpose.str()) - names.begin();
            job.placement.hops[static_cast<size_t>(index)] =
                read_hops(at.inside(plan, fmt::format(".{}", purpose.str())));
          }
        } else {
          job.placement.hops.fill(read_hops(at));
        }
      },
      [](const Job& job) {
        Json table = Json::object();
        for (Purpose purpose : all_purposes) {
          const HopPlan& plan = job.placement.hops[static_cast<size_t>(purpose)];
          if (!plan.empty()) table[std::string(name_of(purpose))] = plan;
        }
        return table.empty() ? Json() : table;
      });
}

Key state_key(std::string_view state, std::string doc, std::string Placement::*member) {
  return text(
      fmt::format("placement.{}", state), "\"none\" | \"all\" | a level's name",
      "as the preset says; \"none\" without one",
      std::move(doc), [member](auto& job) -> auto& { return job.placement.*member; }, Empty::refused);
}

Key rope_key(std::string_view name, std::string fallback, std::string doc, double model::RopeScaling::*member,
             Bounds bounds) {
  return custom(
      fmt::format("model.rope_scaling.{}", name), "number", std::move(fallback), std::move(doc),
      [=](Job& job, const Spot& at) {
        if (!job.model.rope_scaling) job.model.rope_scaling.emplace();
        (*job.model.rope_scaling).*member = read_number(at, bounds);
      },
      [=](const Job& job) { return job.model.rope_scaling ? Json((*job.model.rope_scaling).*member) : Json(); });
}

// ---- the table ----

std::vector<Key> make_table() {
  using model::Activation, model::Family, model::Initialisation;
  const auto family_is = [](auto... families) {
    return [=](const Job& job) { return ((job.model.family == families) || ...); };
  };
  std::vector<Key> table;
  const auto add = [&](Key key) -> Key& { return table.emplace_back(std::move(key)); };
  const auto required = [&](Key key) -> Key& {
    key.required = true;
    key.fallback = "required";
    return add(std::move(key));
  };

  // [model]
  add(name_or_path("model.preset", "none", "A model of models/ by name, or a file like them; keys below override it",
                   AT(model.preset), Empty::refused));
  add(path("model.from", "none",
           "A Hugging Face folder: dimensions from its config.json, first weights from its safetensors", AT(model_from),
           Empty::refused));
  add(choice<Family>("model.family", "required without preset or from", "Architecture; sets defaults of the keys below",
                     AT(model.family), spellings<Family>({Family::gpt2, Family::gpt_neox, Family::llama}),
                     {Family::gpt2, Family::gpt_neox, Family::llama}));
  add(dimension("model.layers", "required without preset or from", "Transformer layers", AT(model.layers)));
  add(dimension("model.hidden", "required without preset or from", "Width of the residual stream", AT(model.hidden)));
  add(dimension("model.heads", "required without preset or from", "Attention heads", AT(model.heads)));
  add(dimension("model.kv_heads", "model.heads", "Heads of keys and values (fewer: grouped-query attention)",
                AT(model.kv_heads)));
  add(dimension("model.head_dim", "hidden / heads", "Width of a head", AT(model.head_dim)));
  add(dimension("model.ffn", "4 hidden; required for llama", "Inner width of the MLP", AT(model.ffn)));
  add(dimension("model.vocab", "required without preset or from", "Tokens of the vocabulary, padding not counted",
                AT(model.vocab)));
  add(dimension("model.sequence", "required without preset or from", "Longest sequence the model can take",
                AT(model.sequence)));
  add(choice<Activation>("model.activation", "by family: gelu_tanh, gelu_exact, swiglu", "Non-linearity of the MLP",
                         AT(model.activation), {"gelu_exact", "gelu_tanh", "swiglu"},
                         {Activation::gelu_exact, Activation::gelu_tanh, Activation::swiglu}));
  add(number("model.norm_epsilon", "", "Added to the variance in LayerNorm and RMSNorm", AT(model.norm_epsilon),
             positive));
  add(number("model.rotary_fraction", "0.25", "Share of each head's width that is rotated", AT(model.rotary_fraction),
             {.low = 0, .high = 1, .low_open = true}))
      .when("model.family", "family gpt_neox", family_is(Family::gpt_neox));
  add(number("model.rotary_base", "", "Base of the rotary frequencies (rope_theta)", AT(model.rotary_base), positive))
      .when("model.family", "family gpt_neox or llama", family_is(Family::gpt_neox, Family::llama));
  add(rope_key("factor", "8 once one of these is given", "Llama 3's stretching: low frequencies are divided by this",
               &model::RopeScaling::factor, positive))
      .when("model.family", "family llama", family_is(Family::llama));
  add(rope_key("low_freq_factor", "1", "Wavelengths above original_sequence / this are stretched in full",
               &model::RopeScaling::low_freq_factor, positive))
      .when("model.family", "family llama", family_is(Family::llama));
  add(rope_key("high_freq_factor", "4", "Wavelengths below original_sequence / this are left alone",
               &model::RopeScaling::high_freq_factor, positive))
      .when("model.family", "family llama", family_is(Family::llama));
  add(custom(
          "model.rope_scaling.original_sequence", "whole number", "8192", "Sequence length before stretching",
          [](Job& job, const Spot& at) {
            if (!job.model.rope_scaling) job.model.rope_scaling.emplace();
            job.model.rope_scaling->original_sequence = read_whole(at, count);
          },
          [](const Job& job) {
            return job.model.rope_scaling ? Json(job.model.rope_scaling->original_sequence) : Json();
          }))
      .when("model.family", "family llama", family_is(Family::llama));
  add(flag("model.parallel_residual", "true for gpt_neox", "Attention and MLP side by side, not one after the other",
           AT(model.parallel_residual)))
      .when("model.family", "family gpt_neox", family_is(Family::gpt_neox));
  add(flag("model.tied", "true for gpt2", "The head uses the embedding's table", AT(model.tied)));
  // Before the two that it stands for, so that one of them can be given beside it.
  add(custom(
      "model.bias", "true | false", "false for llama", "Sets attention_bias and mlp_bias",
      [](Job& job, const Spot& at) {
        const auto* boolean = at.node.as_boolean();
        if (!boolean) at.mistyped("true or false");
        job.model.attention_bias = job.model.mlp_bias = boolean->get();
      },
      [](const Job&) { return Json(); }));
  add(flag("model.attention_bias", "false for llama", "Biases on the attention's matrices", AT(model.attention_bias)));
  add(flag("model.mlp_bias", "false for llama", "Biases on the MLP's matrices", AT(model.mlp_bias)));
  add(number("model.dropout", "", "Probability on the embedding and on both residual branches", AT(model.dropout),
             below_one));
  add(number("model.attention_dropout", "",
             "Probability on attention's weights: models from elsewhere have it, only 0 is trained",
             AT(model.attention_dropout), below_one));
  add(choice<Initialisation>(
      "model.initialisation", "\"small_wang\" for gpt_neox, else \"gpt2\"",
      "First weights: normal(0, init_std) with residual projections over sqrt(2 layers), or small_init and wang_init",
      AT(model.initialisation), {"gpt2", "small_wang"}, {Initialisation::gpt2, Initialisation::small_wang}));
  add(number("model.init_std", "", "Standard deviation of the first weights", AT(model.init_std), non_negative))
      .when("model.initialisation", "initialisation \"gpt2\"",
            [](const Job& job) { return job.model.initialisation == Initialisation::gpt2; });

  // [data]
  add(train_key());
  add(path("data.validation", "none", "Token file of the validation loss", AT(data.validation), Empty::allowed));
  add(tokenizer_key());
  add(split_key());
  add(flag("data.attention_across_documents", "", "Whether a token sees the documents before its own in its sequence",
           AT(data.attention_across_documents)));

  // [batch]
  required(
      dimension("batch.global", "", "Sequences a step = micro x accumulation x data-parallel ranks", AT(batch.global)));
  add(whole("batch.micro", "", "Sequences of one forward and backward pass of a rank", AT(batch.micro), count));
  add(dimension("batch.sequence", "model.sequence", "Tokens of a sequence, at most model.sequence",
                AT(batch.sequence)));

  // [mesh]
  add(whole("mesh.tensor", "", "Tensor-parallel degree", AT(mesh.tensor), count));
  add(whole("mesh.pipeline", "", "Pipeline stages; the data-parallel degree follows from the ranks", AT(mesh.pipeline),
            count));
  add(levels_key());
  add(level_names_key());
  add(order_key());

  // [placement]
  {
    const auto presets = placement_presets();
    const std::vector<std::string> names(presets.begin(), presets.end());
    add(choice<std::string>("placement.preset", "\"ddp\", or none if the four levels are given",
                            "A named scheme; or give the four levels", AT(placement.preset), names, names));
  }
  add(state_key("weights", "Level up to which peers share one copy of the weights", &Placement::weights));
  add(state_key("secondary", "Level of a second copy for later gathers of the same step; narrower than weights",
                &Placement::secondary));
  add(state_key("gradients", "Level of the gradients; at least that of the weights", &Placement::gradients));
  add(state_key("optimizer", "Level of the optimizer's states; at least that of the gradients", &Placement::optimizer));
  add(text("placement.level", "a level's name", "\"node\"", "The level k of presets hsdp and mics", AT(placement.level),
           Empty::refused))
      .when("placement.preset", "preset hsdp or mics",
            [](const Job& job) { return takes_level(job.placement.preset); });
  add(wire_key(Purpose::weights, "How weights travel to where they compute"));
  add(wire_key(Purpose::gradients, "How gradients travel after each unit's backward"));
  add(wire_key(Purpose::reduction, "How gradients travel once a step, beyond their level"));
  add(wire_key(Purpose::update, "How new weights travel after the update"));
  add(block_key("int8", &Placement::int8_block));
  add(block_key("int4", &Placement::int4_block));
  add(choice<Rounding>("placement.wires.rounding", "Of quantised wires", AT(placement.rounding),
                       {Rounding::nearest, Rounding::stochastic}));
  add(flag("placement.wires.error_feedback", "", "Carry the slowest hop's rounding errors into the next step",
           AT(placement.error_feedback)));
  add(hops_key());
  add(choice<Collectives>("placement.collectives",
                          "Hop by hop over the levels, or as one ring over all ranks that take part, as published",
                          AT(placement.collectives), {Collectives::levels, Collectives::flat}));
  add(whole("placement.resident", "", "Units of at most so many parameters keep whole weights on every rank",
            AT(placement.resident), count_or_none));
  add(flag("placement.reshard_after_forward", "",
           "Gathered weights are dropped after the forward and gathered again for the backward; else kept",
           AT(placement.reshard_after_forward)));

  // [schedule]
  add(choice<Pipeline>(
      "schedule.pipeline", "Order of forward and backward over pipeline stages", AT(schedule.pipeline),
      {Pipeline::gpipe, Pipeline::one_f_one_b, Pipeline::interleaved, Pipeline::zb_h1, Pipeline::zb_v}));
  add(whole("schedule.chunks", "", "Chunks of consecutive units that each stage holds", AT(schedule.chunks), count))
      .when("schedule.pipeline", "pipeline \"interleaved\"",
            [](const Job& job) { return job.schedule.pipeline == Pipeline::interleaved; });
  add(text("schedule.layout", "chunks between |", "balanced by cost",
           "Units of each chunk in order, such as \"embedding 0-4 | 5-9 | 10-14 head\"", AT(schedule.layout),
           Empty::allowed));
  add(choice<Recompute>("schedule.recompute",
                        "Remade in the backward pass instead of kept: nothing, attention, whole layers",
                        AT(schedule.recompute), {Recompute::none, Recompute::selective, Recompute::full}));
  add(whole("schedule.prefetch", "", "Units whose weights are gathered ahead of use", AT(schedule.prefetch),
            count_or_none));
  add(whole("schedule.prefetch_bytes", "", "Bytes of weights that may be gathered ahead of use; 0: no bound",
            AT(schedule.prefetch_bytes), count_or_none));
  add(whole("schedule.overlap", "",
            "Units whose backward may run while gradients of those before still travel; each takes memory for a unit's "
            "gradients",
            AT(schedule.overlap), count_or_none));

  // [precision]
  add(choice<DType>("precision.compute", "", "Type of weights and activations; fp32 master weights in any case",
                    AT(precision.compute), {"fp32", "bf16", "fp16"}, {DType::f32, DType::bf16, DType::f16}));
  add(choice<DType>("precision.gradients", "\"fp32\" in fp32 runs, else \"bf16\"",
                    "Type in which gradients travel on full wires; they are summed in fp32 in any case",
                    AT(precision.gradients), {"fp32", "bf16"}, {DType::f32, DType::bf16}));

  {
    const auto in_fp16 = [](const Job& job) { return job.precision.compute == DType::f16; };
    const auto scaling = [&](Key key) { add(std::move(key)).when("precision.compute", "compute \"fp16\"", in_fp16); };
    scaling(number("precision.loss_scaling.fixed", "", "Loss scale of the whole run; 0: found as training goes",
                   AT(precision.scaling.fixed), non_negative));
    scaling(whole("precision.loss_scaling.initial_power", "", "A dynamic scale starts at 2 to this power",
                  AT(precision.scaling.initial_power), {.low = 0, .high = 126}));
    scaling(whole("precision.loss_scaling.window", "", "Good steps after which the scale doubles",
                  AT(precision.scaling.window), count));
    scaling(whole("precision.loss_scaling.hysteresis", "", "Overflows until the scale halves",
                  AT(precision.scaling.hysteresis), count));
    scaling(flag("precision.loss_scaling.consecutive_hysteresis", "",
                 "Each good step restores the hysteresis; else only a doubling does",
                 AT(precision.scaling.consecutive)));
    scaling(number("precision.loss_scaling.minimum", "", "An overflow at this scale ends the run",
                   AT(precision.scaling.minimum), positive));
  }

  // [optimizer]
  add(choice<std::string>("optimizer.name", "",
                          "The update rule; adamw8bit keeps both moments in 8 bits, block by block", AT(optimizer.name),
                          {"adamw", "adamw8bit"}, {"adamw", "adamw8bit"}));
  add(whole("optimizer.block", "", "Elements of 8-bit moments that share a scale; a multiple of 64 that divides 2048",
            AT(optimizer.block), {.low = 64, .high = static_cast<double>(ops::grain)}))
      .when("optimizer.name", "name \"adamw8bit\"", [](const Job& job) { return job.optimizer.name == "adamw8bit"; });
  add(number("optimizer.lr", "", "Full learning rate", AT(optimizer.lr), positive));
  add(custom(
      "optimizer.betas", "list of two numbers", "", "Decay of the first and second moments",
      [](Job& job, const Spot& at) {
        const toml::array& list = read_list(at, "a list of two numbers");
        if (list.size() != 2) at.fail(fmt::format("must be a list of two numbers, not {}", list.size()));
        job.optimizer.beta1 = read_number(at.inside(list[0], "[0]"), below_one);
        job.optimizer.beta2 = read_number(at.inside(list[1], "[1]"), below_one);
      },
      [](const Job& job) {
        return Json::array({job.optimizer.beta1, job.optimizer.beta2});
      }));
  add(number("optimizer.epsilon", "", "Added to the root of the second moment", AT(optimizer.epsilon), positive));
  add(number("optimizer.weight_decay", "", "Decoupled weight decay", AT(optimizer.weight_decay), non_negative));
  add(choice<DecayOn>("optimizer.weight_decay_on", "What decays: matrices and tables only, or vectors too",
                      AT(optimizer.weight_decay_on), {DecayOn::matrices, DecayOn::all}));
  add(number("optimizer.clip", "", "Largest global gradient norm; 0: no clipping", AT(optimizer.clip), non_negative));
  {
    using optim::Shape;
    add(choice<Shape>("optimizer.schedule.shape", "Learning rate after the warm-up", AT(optimizer.schedule.shape),
                      {Shape::constant, Shape::cosine, Shape::linear, Shape::wsd}));
    add(length("optimizer.schedule.warmup", "Linear warm-up: a share of all steps if below 1, else steps",
               AT(optimizer.schedule.warmup)));
    add(number("optimizer.schedule.min_lr", "", "Rate at the end", AT(optimizer.schedule.min_lr), non_negative))
        .when("optimizer.schedule.shape", "shape cosine, linear or wsd",
              [](const Job& job) { return job.optimizer.schedule.shape != Shape::constant; });
    add(length("optimizer.schedule.decay", "Final decay of shape wsd: a share of all steps if below 1, else steps",
               AT(optimizer.schedule.decay)))
        .when("optimizer.schedule.shape", "shape wsd",
              [](const Job& job) { return job.optimizer.schedule.shape == Shape::wsd; });
  }

  // [run]
  {
    Key steps = dimension("run.steps", "", "Updates of the whole run", AT(run.steps));
    const auto field = AT(run.steps);
    steps.set = [=](Job& job, const Given& given) { field(job) = read_whole(spot(given), long_count); };
    required(std::move(steps));
  }
  add(whole("run.seed", "", "Of initial weights, dropout and data order", AT(run.seed),
            {.low = 0, .high = 9007199254740992.0}));
  add(whole("run.threads", "", "Threads of a rank", AT(run.threads), {.low = 1, .high = 4096}));
  add(whole("run.save.every", "", "Steps between checkpoints; 0: only at the end", AT(run.save.every), count_or_none));
  add(whole("run.save.keep", "", "Checkpoints kept, the newest", AT(run.save.keep), count));
  add(text("run.save.folder", "path", "", "Inside run.folder, unless absolute", AT(run.save.folder), Empty::refused));
  add(number("run.timeout", "", "Seconds that a rank waits for others before it names them and gives up",
             AT(run.timeout), positive));
  add(choice<bool>("run.communication_threads", "\"one\"",
                   "Threads that drive transfers: one for all levels, or one for each (takes MPI_THREAD_MULTIPLE)",
                   AT(run.thread_a_level), {"one", "levels"}, {false, true}));
  add(name_or_path("run.machine", "detected", "A machine of machines/ by name, or a file like them", AT(run.machine),
                   Empty::allowed));
  add(text("run.folder", "path", "", "Logs, metrics and checkpoints; relative to the working directory", AT(run.folder),
           Empty::refused));
  add(whole("run.log_every", "", "Steps between progress lines", AT(run.log_every), count));
  add(trace_key());
  add(whole("run.validate.every", "", "Steps between validation losses; 0: never", AT(run.validate.every),
            count_or_none));
  add(whole("run.validate.batches", "", "Global batches a validation loss is the mean of", AT(run.validate.batches),
            count));

#undef AT

  const Job defaults;
  for (Key& key : table)
    if (key.fallback.empty()) key.fallback = toml_text(key.get(defaults));
  return table;
}

}  // namespace

std::span<const Key> key_table() {
  static const std::vector<Key> table = make_table();
  return table;
}

const Key* find_key(std::string_view name) {
  for (const Key& key : key_table())
    if (key.name == name) return &key;
  return nullptr;
}

std::span<const KeyDoc> keys() {
  static const std::vector<KeyDoc> docs = [] {
    std::vector<KeyDoc> result;
    for (const Key& key : key_table())
      result.push_back(
          {key.name, key.type, key.fallback, key.only.empty() ? key.doc : key.doc + " (" + key.only + ")"});
    return result;
  }();
  return docs;
}

std::string keys_markdown() {
  const auto cell = [](std::string_view text) {
    std::string escaped;
    for (char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
    return escaped;
  };
  std::string text, section;
  for (const KeyDoc& key : keys()) {
    const size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("{}## [{}]\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
                          text.empty() ? "" : "\n", section);
    }
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.name.substr(dot + 1), cell(key.type), cell(key.fallback),
                        cell(key.doc));
  }
  return text;
}

}  // namespace strata::job
