#include "step/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "job/batch.h"
#include "job/placement.h"
#include "job/stages.h"
#include "model/config.h"
#include "model/unit.h"
#include "step/memory.h"
#include "step/schedules/schedule.h"
#include "step/summary.h"

namespace strata::step {

using Json = nlohmann::ordered_json;

namespace {

std::vector<int64_t> runs_of_blocks(const Program& program) {
  std::vector<int64_t> runs(program.blocks.size());
  for (const Task& task : program.tasks)
    if (const auto* compute = std::get_if<Compute>(&task.work)) ++runs[static_cast<size_t>(compute->block)];
  return runs;
}

std::string shape_text(const ops::Shape& shape) {
  std::vector<int64_t> extents(shape.extent.begin(), shape.extent.begin() + shape.rank);
  return fmt::format("[{}]", fmt::join(extents, ","));
}

std::string operand(const Block& block, int t) {
  const ops::Tensor& tensor = block.tensors[static_cast<size_t>(t)];
  return fmt::format("{}{}", tensor.name, shape_text(tensor.shape));
}

/// "rotated[512,192] > saved = rotary(...)": where results go, unless to scratch.
std::string op_text(const Block& block, const ops::Op& op) {
  std::vector<std::string> outs, ins;
  for (int t : op.out) {
    const ops::Role role = block.formals[static_cast<size_t>(block.tensors[static_cast<size_t>(t)].formal)].role;
    const bool scratch = role == ops::Role::temporary;
    outs.push_back(operand(block, t) + (scratch ? "" : fmt::format(" > {}", ops::name_of(role))));
  }
  for (int t : op.in) ins.push_back(operand(block, t));
  return fmt::format("{} {} {}({}){}", fmt::join(outs, ", "), op.accumulate ? "+=" : "=", ops::name_of(op.kind),
                     fmt::join(ins, ", "), op.remade ? "   (made again)" : "");
}

std::string letter(Phase phase) {
  switch (phase) {
    case Phase::forward: return "F";
    case Phase::backward_input: return "I";
    case Phase::backward_weight: return "W";
    case Phase::update: return "update";
    case Phase::backward: break;
  }
  return "B";
}

/// Consecutive tasks of one phase and micro-batch as one item: "F0 B0 F1 B1 update".
std::vector<std::string> schedule_items(const Program& program) {
  std::vector<std::string> items;
  for (const Task& task : program.tasks) {
    if (!program.block_of(task)) continue;
    const Phase phase = program.block_of(task)->phase;
    std::string item = phase == Phase::update ? "update" : letter(phase) + std::to_string(task.micro_batch);
    if (items.empty() || items.back() != item) items.push_back(std::move(item));
  }
  return items;
}

/// Items in a row; of long ones the begin and the end.
std::string row_of(const std::vector<std::string>& items) {
  std::string row = " ";
  for (size_t i = 0; i < items.size(); ++i) {
    if (items.size() > 48 && i == 32) {
      row += " ...";
      i = items.size() - 8;
    }
    row += " " + items[i];
  }
  return row;
}

/// Units of a chunk: "layers.3 to head".
std::string range_text(const Program& program, const job::UnitRange& range) {
  const std::string& first = program.units[static_cast<size_t>(range.first)].name;
  const std::string& last = program.units[static_cast<size_t>(range.last - 1)].name;
  return range.last - range.first == 1 ? first : first + " to " + last;
}

/// Each stage's units and the order in which it goes through them.
std::string pipeline_text(const Request& request, const Program& program) {
  const job::Job& job = request.job;
  const auto stages = static_cast<int32_t>(job.mesh.pipeline);
  const int32_t each = job::chunks_a_stage(job);
  const std::vector<job::UnitRange> chunks = job::chunk_units(job);
  std::string out = fmt::format(
      "\nPipeline: {} stages, {}, {} chunk{} each (F, B: forward, backward of a micro-batch; I, W: its halves{})\n",
      stages, job::name_of(job.schedule.pipeline), each, each == 1 ? "" : "s",
      each > 1 ? "; a, b, ...: which chunk" : "");
  for (int32_t stage = 0; stage < stages; ++stage) {
    std::vector<std::string> ranges, items;
    std::map<int32_t, char> names;
    for (int32_t chunk = 0; chunk < static_cast<int32_t>(chunks.size()); ++chunk) {
      if (stage_of(job.schedule.pipeline, chunk, stages) != stage) continue;
      const auto name = static_cast<char>('a' + names.size() % 26);
      names[chunk] = name;
      ranges.push_back((each > 1 ? std::string(1, name) + ": " : "") +
                       range_text(program, chunks[static_cast<size_t>(chunk)]));
    }
    const Slots list = program.goal == Goal::train
                           ? slots(job.schedule.pipeline, stage, stages, each, program.micro_batches)
                           : forward_only(job.schedule.pipeline, stage, stages, each, program.micro_batches);
    for (const ScheduleSlot& slot : list)
      items.push_back(letter(slot.phase) + std::to_string(slot.micro_batch) +
                      (each > 1 ? std::string(1, names[slot.chunk]) : ""));
    out += fmt::format("  stage {}   {}\n{}\n", stage, fmt::join(ranges, ", "), "  " + row_of(items));
  }
  return out;
}

std::string task_text(const Program& program, TaskId id) {
  const Task& task = program.tasks[static_cast<size_t>(id)];
  const auto* compute = std::get_if<Compute>(&task.work);
  const auto* transfer = std::get_if<Transfer>(&task.work);
  std::string text = compute ? program.block_of(task)->name
                             : fmt::format("{} of {}", name_of(transfer->hop.collective), name_of(transfer->purpose));
  const int32_t unit = compute ? compute->unit : transfer->unit;
  if (unit >= 0) text += fmt::format(" of {}", program.units[static_cast<size_t>(unit)].name);
  if (task.micro_batch >= 0) text += fmt::format(", micro-batch {}", task.micro_batch);
  return text;
}

/// Transfers that differ only in unit and micro-batch, together.
struct TransferGroup {
  Transfer transfer;  ///< its `elements` are the whole group's
  int64_t runs = 0;
};

std::vector<TransferGroup> transfer_groups(const Program& program) {
  std::vector<TransferGroup> groups;
  for (const Task& task : program.tasks) {
    const auto* t = std::get_if<Transfer>(&task.work);
    if (!t) continue;
    const auto same = [&](const TransferGroup& g) {
      return g.transfer.hop.collective == t->hop.collective && g.transfer.purpose == t->purpose &&
             g.transfer.first_level == t->first_level && g.transfer.last_level == t->last_level;
    };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) {
      groups.push_back({*t, 0});
      found = groups.end() - 1;
      found->transfer.hop.elements = 0;
    }
    found->transfer.hop.elements += t->hop.elements;
    ++found->runs;
  }
  return groups;
}

std::string levels_text(const Program& program, const Transfer& transfer) {
  std::vector<std::string> names;
  for (int32_t l = transfer.first_level; l < transfer.last_level; ++l)
    names.push_back(program.level_names[static_cast<size_t>(l)]);
  return fmt::format("{}", fmt::join(names, "+"));
}

int64_t scratch_of(const Block& block) {
  for (const Formal& formal : block.formals)
    if (formal.role == ops::Role::temporary) return formal.bytes;
  return 0;
}

/// "2 P / 8"
std::string form_text(const StateShare& state) {
  if (state.closed_form == 0) return "";
  return fmt::format("{:.6g} P{}", state.bytes_per_parameter, state.ranks > 1 ? fmt::format(" / {}", state.ranks) : "");
}

std::string reach_text(const Program& program, const StateShare& state) {
  return state.ranks == 1 ? "every rank" : program.level_names[static_cast<size_t>(state.reach - 1)];
}

std::string mesh_text(const Program& program) {
  std::vector<std::string> levels;
  for (size_t l = 0; l < program.widths.size(); ++l)
    levels.push_back(fmt::format("{} {}", program.level_names[l], program.widths[l]));
  std::string text = fmt::format("{}", fmt::join(levels, " x "));
  const int64_t stages = program.mesh.degree(layout::Axis::pipeline);
  return stages > 1 ? fmt::format("{} data-parallel, on each of {} stages", text, stages) : text;
}

/// "0.438 M": as a share of one 16-bit copy of the model.
std::string copies_text(int64_t bytes, int64_t copy) {
  return fmt::format("{:.3f} M", static_cast<double>(bytes) / static_cast<double>(copy));
}

int64_t copy_bytes(const PlacementSummary& placement) { return placement.padded * size_of(DType::bf16); }

std::string placement_text(const Request& request, const Program& program, const PlacementSummary& placement) {
  std::string out = fmt::format(
      "\nPlacement (P = {} parameters: {} of the model, {} of padding, {:.3g} %)\n", placement.padded,
      placement.parameters, placement.padded - placement.parameters,
      100.0 * static_cast<double>(placement.padded - placement.parameters) / static_cast<double>(placement.parameters));
  const job::Sharding sharding = job::resolve_placement(request.job, program.level_names);
  out += fmt::format("  levels  {}\n  wires   {}\n", mesh_text(program),
                     job::describe_wires(sharding, program.level_names));
  out += fmt::format("  {:<12} {:<12} {:>6}   {:<16} {:>20} {:>20}\n", "state", "over", "ranks", "closed form", "bytes",
                     "of this rank");
  for (const StateShare& state : placement.states)
    out += fmt::format("  {:<12} {:<12} {:>6}   {:<16} {:>20} {:>20}{}\n", state.state, reach_text(program, state),
                       state.ranks, form_text(state), state.closed_form, state.bytes,
                       state.difference.empty() ? "" : "   " + state.difference);
  out += fmt::format("  {:<12} {:<12} {:>6}   {:<16} {:>20} {:>20}   {}\n", "all", "", "", "", placement.closed_form(),
                     placement.bytes(), human_bytes(placement.bytes()));
  return out;
}

std::string traffic_text(const Program& program, const PlacementSummary& placement, const TrafficSplit& split) {
  const int64_t copy = copy_bytes(placement);
  std::string out = fmt::format(
      "\nTraffic: what this rank sends in a step of {} micro-batch{} (M = 2 P = {}, the model once in 16 bits)\n"
      "  {:<10} {:<20} {:<5} {:>17} {:>10} {:>10}   {:>19} {:>15}\n",
      program.micro_batches, program.micro_batches == 1 ? "" : "es", human_bytes(copy), "level", "purpose", "wire",
      "bytes a step", "messages", "in M", "each micro-batch", "once a step");
  const auto row = [&](std::string_view level, std::string_view purpose, std::string_view wire, comm::Sent all,
                       int64_t each, int64_t once) {
    out += fmt::format("  {:<10} {:<20} {:<5} {:>17} {:>10} {:>10}   {:>19} {:>15}\n", level, purpose, wire, all.bytes,
                       all.messages, copies_text(all.bytes, copy), human_bytes(each), human_bytes(once));
  };
  const auto of = [](const Traffic& traffic, const Traffic::Key& key) {
    const auto found = traffic.entries().find(key);
    return found == traffic.entries().end() ? comm::Sent{} : found->second;
  };
  comm::Sent whole;
  for (size_t level = 0; level < program.level_names.size(); ++level) {
    comm::Sent all;
    for (const auto& [key, sent] : split.step.entries()) {
      if (key.level != static_cast<int32_t>(level)) continue;
      row(program.level_names[level], name_of(key.purpose), key.wire, sent, of(split.micro_batch, key).bytes,
          of(split.once, key).bytes);
      all.bytes += sent.bytes, all.messages += sent.messages;
    }
    if (all.messages == 0) continue;
    const auto l = static_cast<int32_t>(level);
    row(program.level_names[level], "all", "", all, split.micro_batch.bytes(l), split.once.bytes(l));
    whole.bytes += all.bytes, whole.messages += all.messages;
  }
  out += fmt::format("  {:<10} {:<20} {:<5} {:>17} {:>10} {:>10}\n", "all", "", "", whole.bytes, whole.messages,
                     copies_text(whole.bytes, copy));
  return out;
}

Json placement_json(const Request& request, const Program& program, const PlacementSummary& placement) {
  const job::Sharding sharding = job::resolve_placement(request.job, program.level_names);
  Json json;
  json["parameters"] = placement.parameters;
  json["padded_parameters"] = placement.padded;
  json["levels"] = Json::array();
  for (size_t l = 0; l < program.widths.size(); ++l)
    json["levels"].push_back({{"name", program.level_names[l]}, {"width", program.widths[l]}});
  json["wires"] = job::describe_wires(sharding, program.level_names);
  json["states"] = Json::array();
  for (const StateShare& state : placement.states)
    json["states"].push_back({{"state", state.state},
                              {"over", state.ranks == 1 ? Json(nullptr) : Json(reach_text(program, state))},
                              {"ranks", state.ranks},
                              {"bytes_per_parameter", state.bytes_per_parameter},
                              {"closed_form", form_text(state)},
                              {"closed_form_bytes", state.closed_form},
                              {"bytes", state.bytes}});
  json["closed_form_bytes"] = placement.closed_form();
  json["bytes"] = placement.bytes();
  return json;
}

Json traffic_json(const Program& program, const PlacementSummary& placement, const TrafficSplit& split) {
  const auto put = [](Json& json, const char* bytes, const char* messages, const comm::Sent& sent) {
    json[bytes] = sent.bytes;
    json[messages] = sent.messages;
  };
  const auto of = [](const Traffic& traffic, const Traffic::Key& key) {
    const auto found = traffic.entries().find(key);
    return found == traffic.entries().end() ? comm::Sent{} : found->second;
  };
  Json json;
  json["model_bytes_16"] = copy_bytes(placement);
  json["entries"] = Json::array();
  std::vector<comm::Sent> by_level(program.level_names.size());
  comm::Sent all;
  for (const auto& [key, sent] : split.step.entries()) {
    const auto level = static_cast<size_t>(key.level);
    Json entry = {{"level", program.level_names[level]}, {"purpose", name_of(key.purpose)}, {"wire", key.wire}};
    put(entry, "bytes", "messages", sent);
    put(entry, "bytes_per_micro_batch", "messages_per_micro_batch", of(split.micro_batch, key));
    put(entry, "bytes_once", "messages_once", of(split.once, key));
    json["entries"].push_back(std::move(entry));
    for (comm::Sent* sum : {&by_level[level], &all}) sum->bytes += sent.bytes, sum->messages += sent.messages;
  }
  json["levels"] = Json::array();
  for (size_t level = 0; level < by_level.size(); ++level) {
    Json entry = {{"level", program.level_names[level]}};
    put(entry, "bytes", "messages", by_level[level]);
    entry["bytes_per_micro_batch"] = split.micro_batch.bytes(static_cast<int32_t>(level));
    entry["bytes_once"] = split.once.bytes(static_cast<int32_t>(level));
    json["levels"].push_back(std::move(entry));
  }
  put(json, "bytes", "messages", all);
  return json;
}

}  // namespace

std::string explain(const Request& request, const Program& program, const device::Planner& planner) {
  std::string out;
  const auto line = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
    out += '\n';
  };
  const model::Config& model = request.job.model;
  line("Step program: {}, rank {} of {}", name_of(program.goal), request.rank, request.ranks);
  line("  model   {} {}: {} parameters, {} layers, hidden {}, {} heads, sequence {}, vocabulary {}",
       model::name_of(model.family), model.preset, human_count(static_cast<double>(model::parameter_count(model))),
       model.layers, model.hidden, model.heads, program.sequence, model.vocab);
  if (program.goal != Goal::generate)
    line("  batch   {}", job::describe(job::resolve_batch(request.job, request.ranks)));
  if (request.ranks > 1) {
    const job::Sharding reach = job::resolve_placement(request.job, program.level_names);
    line("  states  {}", job::describe(reach, program.level_names));
  }
  line("  kept    recompute {}", job::name_of(request.job.schedule.recompute));
  line("  work    {}FLOP on this rank{}; attention's masked half not counted", human_count(program.flops()),
       program.recompute_flops() > 0
           ? fmt::format(", {}FLOP of them made again", human_count(program.recompute_flops()))
           : "");
  const bool trains = program.goal == Goal::train;
  const PlacementSummary placement = trains ? summarise_placement(request, program) : PlacementSummary();
  if (trains) out += placement_text(request, program, placement);

  line("\nBlocks (each once; T = tokens of a micro-batch = {})", program.batch * program.sequence);
  const std::vector<int64_t> runs = runs_of_blocks(program);
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    const Block& block = program.blocks[b];
    line("\n  {}   runs {}x, each {}FLOP, {} moved, {} scratch", block.name, runs[b], human_count(block.cost.flops),
         human_bytes(static_cast<int64_t>(block.cost.bytes)), human_bytes(scratch_of(block)));
    for (const ops::Op& op : block.ops) line("    {}", op_text(block, op));
  }

  if (program.mesh.degree(layout::Axis::pipeline) > 1) out += pipeline_text(request, program);
  line("\nSchedule ({} tasks; F, B = forward, backward of a micro-batch through this rank's units)",
       program.tasks.size());
  line("{}", row_of(schedule_items(program)));

  if (const auto groups = transfer_groups(program); !groups.empty()) {
    line("\nTransfers of a step on this rank (vector: the whole that is gathered or reduced, all runs together)");
    for (const auto& [transfer, number] : groups)
      line("  {:<14} {:<16} over {:<20} {:>5} ranks   {:>5}x   vector {}", name_of(transfer.hop.collective),
           name_of(transfer.purpose), levels_text(program, transfer), transfer.hop.members(), number,
           human_bytes(transfer.hop.elements * size_of(transfer.hop.dtype)));
    if (trains) out += traffic_text(program, placement, split_traffic(request, program, planner));
  }

  const MemoryPeak peak = memory_peak(program);
  line("\nMemory: {} in one allocation, {} of it kept from step to step", human_bytes(program.arena_bytes),
       human_bytes(program.persistent_bytes));
  line("  peak at task {}: {}", peak.task, task_text(program, peak.task));
  for (int k = 0; k < buffer_kinds; ++k)
    if (peak.by_kind[static_cast<size_t>(k)] > 0)
      line("    {:<20} {:>10}   {}", name_of(static_cast<BufferKind>(k)),
           human_bytes(peak.by_kind[static_cast<size_t>(k)]), peak.by_kind[static_cast<size_t>(k)]);
  line("    {:<20} {:>10}   {}", "gaps", human_bytes(peak.unused_bytes), peak.unused_bytes);
  line("    {:<20} {:>10}   {}", "all", human_bytes(program.arena_bytes), program.arena_bytes);
  return out;
}

Json explain_json(const Request& request, const Program& program, const device::Planner& planner) {
  const model::Config& model = request.job.model;
  const MemoryPeak peak = memory_peak(program);
  Json json;
  json["goal"] = name_of(program.goal);
  json["rank"] = request.rank;
  json["ranks"] = request.ranks;
  json["model"] = {{"family", model::name_of(model.family)},
                   {"preset", model.preset},
                   {"parameters", model::parameter_count(model)}};
  json["micro_batches"] = program.micro_batches;
  json["micro"] = program.batch;
  json["sequence"] = program.sequence;
  json["recompute"] = job::name_of(request.job.schedule.recompute);
  json["flops"] = program.flops();
  json["recompute_flops"] = program.recompute_flops();
  const std::vector<int64_t> runs = runs_of_blocks(program);
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    const Block& block = program.blocks[b];
    Json ops = Json::array();
    for (const ops::Op& op : block.ops) {
      Json in = Json::array(), outs = Json::array();
      for (int t : op.in) in.push_back(block.tensors[static_cast<size_t>(t)].name);
      for (int t : op.out) outs.push_back(block.tensors[static_cast<size_t>(t)].name);
      ops.push_back({{"kind", ops::name_of(op.kind)},
                     {"in", in},
                     {"out", outs},
                     {"accumulate", op.accumulate},
                     {"remade", op.remade}});
    }
    json["blocks"].push_back({{"name", block.name},
                              {"phase", name_of(block.phase)},
                              {"runs", runs[b]},
                              {"flops", block.cost.flops},
                              {"bytes_moved", block.cost.bytes},
                              {"scratch_bytes", scratch_of(block)},
                              {"ops", ops}});
  }
  json["schedule"] = schedule_items(program);
  json["transfers"] = Json::array();
  for (const auto& [transfer, number] : transfer_groups(program))
    json["transfers"].push_back({{"collective", name_of(transfer.hop.collective)},
                                 {"purpose", name_of(transfer.purpose)},
                                 {"levels", levels_text(program, transfer)},
                                 {"group", transfer.hop.members()},
                                 {"runs", number},
                                 {"vector_bytes", transfer.hop.elements * size_of(transfer.hop.dtype)}});
  if (program.goal == Goal::train) {
    const PlacementSummary placement = summarise_placement(request, program);
    json["placement"] = placement_json(request, program, placement);
    json["traffic"] = traffic_json(program, placement, split_traffic(request, program, planner));
  }
  json["tasks"] = program.tasks.size();
  Json by_kind;
  for (int k = 0; k < buffer_kinds; ++k)
    by_kind[std::string(name_of(static_cast<BufferKind>(k)))] = peak.by_kind[static_cast<size_t>(k)];
  json["memory"] = {{"arena_bytes", program.arena_bytes},
                    {"persistent_bytes", program.persistent_bytes},
                    {"peak_task", task_text(program, peak.task)},
                    {"peak_alive_bytes", peak.alive_bytes},
                    {"gap_bytes", peak.unused_bytes},
                    {"by_kind", by_kind}};
  return json;
}

}  // namespace strata::step
