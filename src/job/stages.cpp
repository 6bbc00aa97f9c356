#include "job/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "model/forward.h"
#include "model/unit.h"

namespace strata::job {

int32_t chunks_a_stage(const Job& job) {
  switch (job.schedule.pipeline) {
    case Pipeline::interleaved: return static_cast<int32_t>(job.schedule.chunks);
    case Pipeline::zb_v: return 2;
    default: return 1;
  }
}

namespace {

std::string unit_name(int32_t unit, int32_t units) {
  return unit == 0 ? "embedding" : unit + 1 == units ? "head" : fmt::format("layer {}", unit - 1);
}

/// "embedding 0-2 | 3 4 5 | 6-8 head"
std::vector<UnitRange> parse_layout(const Job& job, int32_t chunks, const std::string& where) {
  const std::string& text = job.schedule.layout;
  const auto units = static_cast<int32_t>(job.model.layers + 2);
  const std::string open = (where.empty() ? "schedule.layout" : where) + ": ";
  std::vector<UnitRange> result = {{0, 0}};
  int32_t next = 0;
  const auto take = [&](int32_t unit) {
    if (unit < next)
      throw input_error("{}{} comes again or too late: each unit belongs to one chunk, in the model's order", open,
                        unit_name(unit, units));
    if (unit > next)
      throw input_error("{}{} is left out before {}: each unit belongs to one chunk, in the model's order", open,
                        unit_name(next, units), unit_name(unit, units));
    result.back().last = ++next;
  };
  const auto layer = [&](std::string_view digits) {
    int64_t number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number < 0 || number >= job.model.layers)
      throw input_error("{}\"{}\" is no layer of {} (0 to {}), nor \"embedding\" or \"head\"", open, digits,
                        job.model.layers, job.model.layers - 1);
    return static_cast<int32_t>(number) + 1;
  };
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    const size_t dash = word.find('-');
    if (word == "embedding") {
      take(0);
    } else if (word == "head") {
      take(units - 1);
    } else if (dash == std::string::npos) {
      take(layer(word));
    } else {
      const int32_t first = layer(word.substr(0, dash)), last = layer(word.substr(dash + 1));
      if (last < first) throw input_error("{}\"{}\" ends before it begins", open, word);
      for (int32_t unit = first; unit <= last; ++unit) take(unit);
    }
    word.clear();
  };
  const auto end_chunk = [&] {
    end_word();
    if (result.back().first == result.back().last)
      throw input_error("{}chunk {} has no unit; give each of {} at least one", open, result.size(), chunks);
  };
  for (const char c : text) {
    if (c == '|') {
      end_chunk();
      result.push_back({next, next});
    } else if (c == ' ' || c == ',') {
      end_word();
    } else {
      word += c;
    }
  }
  end_chunk();
  if (next != units)
    throw input_error("{}{} is left out at the end: each unit belongs to one chunk", open, unit_name(next, units));
  if (static_cast<int32_t>(result.size()) != chunks)
    throw input_error("{}{} chunks, but mesh.pipeline = {} with {} a stage makes {}", open, result.size(),
                      job.mesh.pipeline, chunks_a_stage(job), chunks);
  return result;
}

}  // namespace

std::vector<UnitRange> chunk_units(const Job& job, const std::string& where) {
  const auto chunks = static_cast<int32_t>(job.mesh.pipeline) * chunks_a_stage(job);
  const auto units = static_cast<int32_t>(job.model.layers + 2);
  if (chunks > units)
    throw input_error(
        "{}: {} stages of {} chunk{} make {} chunks, and the model has {} units ({} layers, embedding, head); at "
        "most {} stages",
        where.empty() ? "mesh.pipeline" : where, job.mesh.pipeline, chunks_a_stage(job),
        chunks_a_stage(job) == 1 ? "" : "s", chunks, units, job.model.layers, units / chunks_a_stage(job));
  if (!job.schedule.layout.empty()) return parse_layout(job, chunks, where);

  std::vector<double> before = {0};  // cost of all units before
  for (const model::Unit& unit : model::units(job.model))
    before.push_back(before.back() + model::unit_flops_per_token(job.model, unit, job.batch.sequence));
  // best[c][u]: of the first u units in c chunks, the dearest chunk, then the sum of squares.
  struct Best {
    double most = 0, squares = 0;
    int32_t from = -1;
    bool operator<(const Best& other) const { return most != other.most ? most < other.most : squares < other.squares; }
  };
  const auto at = [&](int32_t c, int32_t u) { return static_cast<size_t>(c * (units + 1) + u); };
  std::vector<Best> best(static_cast<size_t>((chunks + 1) * (units + 1)), Best{1e300, 1e300, -1});
  best[at(0, 0)] = {0, 0, 0};
  for (int32_t c = 1; c <= chunks; ++c)
    for (int32_t u = c; u <= units - (chunks - c); ++u)
      for (int32_t from = c - 1; from < u; ++from) {
        const Best& rest = best[at(c - 1, from)];
        if (rest.from < 0) continue;
        const double cost = before[static_cast<size_t>(u)] - before[static_cast<size_t>(from)];
        const Best candidate{std::max(rest.most, cost), rest.squares + cost * cost, from};
        if (candidate < best[at(c, u)]) best[at(c, u)] = candidate;
      }
  std::vector<UnitRange> result(static_cast<size_t>(chunks));
  for (int32_t c = chunks, u = units; c > 0; --c) {
    const int32_t from = best[at(c, u)].from;
    result[static_cast<size_t>(c - 1)] = {from, u};
    u = from;
  }
  return result;
}

layout::Mesh mesh_of(const Job& job, const std::vector<machine::Level>& levels) {
  layout::Widths widths;
  int64_t ranks = 1;
  std::string shape;
  for (const machine::Level& level : levels) {
    widths.push_back(level.width);
    ranks *= level.width;
    shape += fmt::format("{}{} {}", shape.empty() ? "" : " x ", level.width, level.name);
  }
  std::array<layout::Axis, layout::axes> order{};
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = job.mesh.order[i] == "tensor"     ? layout::Axis::tensor
               : job.mesh.order[i] == "pipeline" ? layout::Axis::pipeline
                                                 : layout::Axis::data;
  const auto laid = [&](int64_t tensor, int64_t pipeline) -> std::optional<layout::Mesh> {
    if (ranks % (tensor * pipeline) != 0) return {};
    return layout::Mesh::lay(widths, {tensor, ranks / tensor / pipeline, pipeline}, order);
  };
  if (const auto mesh = laid(job.mesh.tensor, job.mesh.pipeline)) return *mesh;
  // Another degree in place of one of the two, as near as there is.
  std::set<std::string> fixes;
  for (const bool tensor : {true, false}) {
    const int64_t now = tensor ? job.mesh.tensor : job.mesh.pipeline;
    for (const int64_t direction : {-1, 1})
      for (int64_t degree = now + direction; degree >= 1 && degree <= ranks; degree += direction)
        if (tensor ? laid(degree, job.mesh.pipeline) : laid(job.mesh.tensor, degree)) {
          fixes.insert(fmt::format("mesh.{} = {}", tensor ? "tensor" : "pipeline", degree));
          break;
        }
  }
  std::string text;
  for (const std::string& fix : fixes) text += (text.empty() ? "" : " or ") + fix;
  throw input_error(
      "mesh.tensor = {}, mesh.pipeline = {} do not fit {} ({}, innermost first): an axis takes whole levels, "
      "and of the last one a part that divides it{}",
      job.mesh.tensor, job.mesh.pipeline, shape,
      job.mesh.order[0] + ", " + job.mesh.order[1] + ", " + job.mesh.order[2],
      text.empty() ? "; choose other degrees or another mesh.order" : "; nearest that fit: " + text);
}

}  // namespace strata::job
