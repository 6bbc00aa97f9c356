#include "machine/file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"

namespace strata::machine {

namespace {

/// One table of the file: values by key, with errors that say where.
class Table {
 public:
  Table(const toml::table& table, std::string file, std::string name, std::vector<std::string> keys)
      : table_(table), file_(std::move(file)), name_(std::move(name)) {
    for (const auto& [key, node] : table)
      if (const std::string given(key.str()); std::find(keys.begin(), keys.end(), given) == keys.end())
        throw input_error("{}:{}: {} has no key \"{}\"{}", file_, node.source().begin.line, place(), given,
                          did_you_mean(given, keys));
  }

  std::string text(const char* key) const {
    const auto value = wanted(key).value<std::string>();
    if (!value || value->empty()) fail(key, "must be a text that is not empty");
    return *value;
  }
  double positive(const char* key) const {
    const auto value = wanted(key).value<double>();
    if (!value || !(*value > 0) || *value > 1e30) fail(key, "must be a number above 0");
    return *value;
  }
  double positive(const char* key, double otherwise) const { return table_.get(key) ? positive(key) : otherwise; }
  double share(const char* key) const {
    const double value = positive(key, 1);
    if (value > 1) fail(key, "must be at most 1");
    return value;
  }
  int64_t count(const char* key, int64_t otherwise) const {
    const toml::node* node = table_.get(key);
    if (!node) return otherwise;
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < 1 || *value > int64_t{1} << 31) fail(key, "must be a whole number from 1");
    return *value;
  }
  const toml::table& table(const char* key) const {
    const toml::table* inner = wanted(key).as_table();
    if (!inner) fail(key, "must be a table");
    return *inner;
  }
  const toml::node& wanted(const char* key) const {
    const toml::node* node = table_.get(key);
    if (!node) throw input_error("{}:{}: {} lacks \"{}\"", file_, table_.source().begin.line, place(), key);
    return *node;
  }
  [[noreturn]] void fail(const char* key, const char* what) const {
    throw input_error("{}:{}: {} of {} {}", file_, wanted(key).source().begin.line, key, place(), what);
  }

 private:
  std::string place() const { return name_.empty() ? "the machine" : name_; }
  const toml::table& table_;
  std::string file_, name_;
};

}  // namespace

Machine parse_machine(std::string_view text, const std::string& file) {
  toml::table parsed;
  try {
    parsed = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw input_error("{}:{}: {}", file, error.source().begin.line, error.description());
  }
  Machine machine;
  const Table top(parsed, file, "", {"name", "description", "device", "level"});
  machine.name = top.text("name");
  machine.description = top.text("description");
  const Table device(
      top.table("device"), file, "[device]",
      {"name", "memory", "memory_bandwidth", "peak", "peak_fp32", "product_share", "memory_share", "launch", "source"});
  machine.device = {.name = device.text("name"),
                    .memory = device.positive("memory"),
                    .memory_bandwidth = device.positive("memory_bandwidth"),
                    .peak = device.positive("peak"),
                    .peak_fp32 = device.positive("peak_fp32", device.positive("peak") / 4),
                    .product_share = device.share("product_share"),
                    .memory_share = device.share("memory_share"),
                    .launch = device.positive("launch", 0),
                    .source = device.text("source")};
  const toml::array* levels = top.wanted("level").as_array();
  if (!levels || levels->empty()) top.fail("level", "must be one table [[level]] or more, innermost first");
  std::set<std::string> names;
  for (const toml::node& node : *levels) {
    const toml::table* each = node.as_table();
    if (!each) top.fail("level", "must be one table [[level]] or more, innermost first");
    const Table level(*each, file, "[[level]]",
                      {"name", "width", "bandwidth", "bandwidth_alone", "latency", "shared_by", "source"});
    Level& read = machine.levels.emplace_back(Level{level.text("name"), 0});
    if (read.name == "none" || read.name == "all" || !names.insert(read.name).second)
      level.fail("name", "must be a name of its own, neither \"none\" nor \"all\"");
    const toml::node& width = level.wanted("width");
    if (width.value<std::string>() != "*") read.width = level.count("width", 1);
    if (read.width == 0 && &node != &levels->back()) level.fail("width", "can be \"*\" on the outermost level only");
    machine.links.push_back({level.positive("bandwidth"), level.positive("latency"), level.count("shared_by", 1),
                             level.text("source"), level.positive("bandwidth_alone", 0)});
  }
  return machine;
}

std::string show(const Machine& machine) {
  const auto quoted = [](const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
    return result + '"';
  };
  const Device& d = machine.device;
  std::string text = fmt::format("name = {}\ndescription = {}\n\n[device]\nname = {}\n", quoted(machine.name),
                                 quoted(machine.description), quoted(d.name));
  text += fmt::format("memory = {}\nmemory_bandwidth = {}\npeak = {}\npeak_fp32 = {}\n", d.memory, d.memory_bandwidth,
                      d.peak, d.peak_fp32);
  text += fmt::format("product_share = {}\nmemory_share = {}\n", d.product_share, d.memory_share);
  if (d.launch > 0) text += fmt::format("launch = {}\n", d.launch);
  text += fmt::format("source = {}\n", quoted(d.source));
  for (size_t level = 0; level < machine.levels.size(); ++level) {
    const Link& link = machine.links[level];
    const int64_t width = machine.levels[level].width;
    text +=
        fmt::format("\n[[level]]\nname = {}\nwidth = {}\nbandwidth = {}\nlatency = {}\nshared_by = {}\nsource = {}\n",
                    quoted(machine.levels[level].name), width == 0 ? "\"*\"" : std::to_string(width), link.bandwidth,
                    link.latency, link.shared_by, quoted(link.source));
    if (link.bandwidth_alone > 0) text += fmt::format("bandwidth_alone = {}\n", link.bandwidth_alone);
  }
  return text;
}

}  // namespace strata::machine
