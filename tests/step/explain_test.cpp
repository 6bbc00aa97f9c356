#include "step/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "model/config.h"
#include "step/build.h"
#include "step/memory.h"
#include "step/small_job.h"
#include "step/summary.h"

namespace strata::step {
namespace {

using nlohmann::ordered_json;

job::Job on_tree(const std::vector<int64_t>& widths, const std::string& preset, int64_t micro_batches = 2) {
  job::Job job = small_job(model::Family::gpt_neox);
  const char* names[] = {"package", "node", "system"};
  int64_t ranks = 1;
  for (size_t l = 0; l < widths.size(); ++l) job.mesh.levels.push_back({names[l], widths[l]}), ranks *= widths[l];
  job.batch = {.global = ranks * micro_batches, .micro = 1, .sequence = 32};
  job.placement.preset = preset;
  job.precision.compute = job.precision.gradients = DType::bf16;
  return job;
}

const StateShare& state(const PlacementSummary& summary, const std::string& name) {
  for (const StateShare& state : summary.states)
    if (state.state == name) return state;
  throw std::runtime_error("no state " + name);
}

TEST(Explain, TellsBlocksScheduleAndMemory) {
  const Request request{.job = small_job(model::Family::llama)};
  const auto planner = device::make_planner(1);
  const Program p = build(request, Goal::train, *planner);
  const std::string text = explain(request, p, *planner);
  for (const char* part :
       {"layer/forward   runs 6x", "rotary(", "F0 B0 F1 B1 update", "moments", "8 sequences = 4 micro x 2"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("Traffic"), std::string::npos) << "one rank sends nothing";
  const auto json = explain_json(request, p, *planner);
  EXPECT_EQ(json["memory"]["arena_bytes"], p.arena_bytes);
  int64_t by_kind = 0;
  for (const auto& [kind, bytes] : json["memory"]["by_kind"].items()) by_kind += bytes.get<int64_t>();
  EXPECT_EQ(by_kind + json["memory"]["gap_bytes"].get<int64_t>(), p.arena_bytes);
  EXPECT_TRUE(json["traffic"]["entries"].empty());
}

// The facts' table of bytes a parameter, P counted with padding.
TEST(Summary, StatesTakeTheBytesOfTheirClosedForms) {
  struct Case {
    const char* preset;
    double weights, secondary, gradients, master, optimizer;  // bytes a parameter on one of 2 x 4 x 4 ranks
  };
  const auto planner = device::make_planner(1);
  for (const Case& c :
       {Case{"ddp", 2, 0, 4, 4, 8}, Case{"zero1", 2, 0, 4, 4. / 32, 8. / 32},
        Case{"zero2", 2, 0, 4. / 32, 4. / 32, 8. / 32}, Case{"zero3", 2. / 32, 0, 4. / 32, 4. / 32, 8. / 32},
        Case{"hsdp", 2. / 8, 0, 4. / 8, 4. / 8, 8. / 8}, Case{"zeropp", 2. / 32, 2. / 8, 4. / 32, 4. / 32, 8. / 32},
        Case{"zero-topo", 2. / 2, 0, 4. / 8, 4. / 32, 8. / 32}}) {
    const Request request{.job = on_tree({2, 4, 4}, c.preset), .ranks = 32, .rank = 13};
    const PlacementSummary summary = summarise_placement(request, build(request, Goal::train, *planner));
    EXPECT_GE(summary.padded, summary.parameters);
    const auto expect = [&](const char* name, double per_parameter) {
      if (per_parameter == 0) return;
      const StateShare& found = state(summary, name);
      EXPECT_EQ(found.bytes, std::llround(per_parameter * static_cast<double>(summary.padded))) << c.preset << name;
      EXPECT_EQ(found.bytes, found.closed_form) << c.preset << ' ' << name;
      EXPECT_EQ(found.difference, "");
    };
    expect("weights", c.weights);
    expect("secondary", c.secondary);
    expect("gradients", c.gradients);
    expect("master", c.master);
    expect("optimizer", c.optimizer);
    EXPECT_EQ(summary.states.size(), c.secondary > 0 ? 5u : 4u);
    EXPECT_EQ(summary.bytes(), summary.closed_form());
  }
}

TEST(Summary, EightBitMomentsTakeTheirScales) {
  const auto planner = device::make_planner(1);
  Request request{.job = on_tree({2, 2, 2}, "zero3"), .ranks = 8};
  request.job.optimizer.name = "adamw8bit";
  const PlacementSummary summary = summarise_placement(request, build(request, Goal::train, *planner));
  EXPECT_EQ(state(summary, "optimizer").bytes_per_parameter, 2 * (1 + 4. / 256));
  EXPECT_EQ(state(summary, "optimizer").bytes, state(summary, "optimizer").closed_form);
}

TEST(Summary, SaysWhyAStateIsNotItsClosedForm) {
  const auto planner = device::make_planner(1);
  Request request{.job = on_tree({2, 2, 2}, "zero3"), .ranks = 8};
  request.job.placement.resident = 60000;  // the layers
  PlacementSummary summary = summarise_placement(request, build(request, Goal::train, *planner));
  EXPECT_GT(state(summary, "weights").bytes, state(summary, "weights").closed_form);
  EXPECT_NE(state(summary, "weights").difference, "");
  EXPECT_EQ(state(summary, "gradients").difference, "");

  request.job = on_tree({2, 2, 2}, "zero3");
  request.job.model.family = model::Family::gpt2;
  request.job.model.tied = true;
  summary = summarise_placement(request, build(request, Goal::train, *planner));
  EXPECT_GT(state(summary, "gradients").bytes, state(summary, "gradients").closed_form);
  EXPECT_NE(state(summary, "gradients").difference, "");
}

// A step of one more micro-batch sends just that much more, whatever the placement.
TEST(Summary, TrafficSplitsIntoMicroBatchesAndOnce) {
  const auto planner = device::make_planner(1);
  for (const char* preset : {"ddp", "zero3", "hsdp", "zeropp", "zero-topo"})
    for (const bool reshard : {true, false})
      for (int64_t count : {1, 2, 3}) {
        Request request{.job = on_tree({2, 2, 2}, preset, count), .ranks = 8, .rank = 5};
        request.job.placement.reshard_after_forward = reshard;
        const Program program = build(request, Goal::train, *planner);
        const TrafficSplit split = split_traffic(request, program, *planner);
        EXPECT_EQ(split.step, traffic(program));
        Traffic sum = split.once;
        sum.add(split.micro_batch, count);
        EXPECT_EQ(sum, split.step) << preset;
        for (const auto& [key, sent] : split.once.entries()) EXPECT_GE(sent.bytes, 0) << preset;

        request.job = on_tree({2, 2, 2}, preset, count + 1);
        request.job.placement.reshard_after_forward = reshard;
        const Traffic more = traffic(build(request, Goal::train, *planner));
        for (const auto& [key, sent] : more.entries()) {
          const auto now = split.step.entries().find(key);
          const auto each = split.micro_batch.entries().find(key);
          const int64_t expected = each == split.micro_batch.entries().end() ? 0 : each->second.bytes;
          if (key.purpose == Purpose::loss) continue;  // one message, eight bytes longer
          ASSERT_NE(now, split.step.entries().end());
          EXPECT_EQ(sent.bytes - now->second.bytes, expected) << preset << ' ' << name_of(key.purpose);
        }
      }
}

// The facts' table: bytes that a rank sends, as shares of M, one 16-bit copy of the model. Quantised wires add their scales.
TEST(Summary, ZeroTopoSendsWhatTheFactsSay) {
  const auto planner = device::make_planner(1);
  Request request{.job = on_tree({2, 4, 4}, "zero-topo", 3), .ranks = 32};
  for (job::WireChoice& wire : request.job.placement.wires) wire.everywhere = job::Wire::full;
  request.job.placement.hops.fill({{"package"}, {"node"}, {"system"}});
  const Program program = build(request, Goal::train, *planner);
  const PlacementSummary placement = summarise_placement(request, program);
  const TrafficSplit split = split_traffic(request, program, *planner);
  const auto share = [&](const Traffic& traffic, int32_t level, Purpose purpose) {
    int64_t bytes = 0;
    for (const auto& [key, sent] : traffic.entries())
      if (key.level == level && key.purpose == purpose) bytes += sent.bytes;
    return static_cast<double>(bytes) / static_cast<double>(2 * placement.padded);
  };
  EXPECT_DOUBLE_EQ(share(split.micro_batch, 0, Purpose::weights_forward), 1. / 2);
  EXPECT_DOUBLE_EQ(share(split.micro_batch, 0, Purpose::gradients), 1. / 2);
  EXPECT_DOUBLE_EQ(share(split.micro_batch, 1, Purpose::gradients), 3. / 8);
  EXPECT_DOUBLE_EQ(share(split.once, 2, Purpose::reduction), 3. / 4 / 8);
  EXPECT_DOUBLE_EQ(share(split.once, 2, Purpose::update), 3. / 4 / 8);
  EXPECT_DOUBLE_EQ(share(split.once, 1, Purpose::update), 3. / 8);
  EXPECT_EQ(share(split.step, 2, Purpose::weights_forward), 0);
}

TEST(Explain, PlacementAndTrafficInTextAndJson) {
  const auto planner = device::make_planner(1);
  const Request request{.job = on_tree({2, 4, 2}, "zeropp", 1), .ranks = 16, .rank = 3};
  const Program program = build(request, Goal::train, *planner);
  const std::string text = explain(request, program, *planner);
  for (const char* part : {"package 2 x node 4 x system 2", "2 P / 16", "2 P / 8", "8 P / 16", "secondary",
                           "in hops package+node", "Traffic", "weights_forward", "int8", "int4"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;

  const ordered_json json = explain_json(request, program, *planner);
  const ordered_json& placement = json["placement"];
  EXPECT_EQ(placement["parameters"], model::parameter_count(request.job.model));
  EXPECT_EQ(placement["levels"][1], (ordered_json{{"name", "node"}, {"width", 4}}));
  int64_t bytes = 0;
  for (const ordered_json& state : placement["states"]) {
    EXPECT_EQ(state["bytes"], state["closed_form_bytes"]);
    bytes += state["bytes"].get<int64_t>();
  }
  EXPECT_EQ(placement["bytes"], bytes);

  const ordered_json& sent = json["traffic"];
  const Traffic counted = traffic(program);
  EXPECT_EQ(sent["entries"].size(), counted.entries().size());
  EXPECT_EQ(sent["model_bytes_16"], 2 * placement["padded_parameters"].get<int64_t>());
  std::map<std::string, int64_t> by_level;
  int64_t all = 0, messages = 0;
  for (const ordered_json& entry : sent["entries"]) {
    by_level[entry["level"]] += entry["bytes"].get<int64_t>();
    all += entry["bytes"].get<int64_t>(), messages += entry["messages"].get<int64_t>();
    EXPECT_EQ(entry["bytes"], entry["bytes_per_micro_batch"].get<int64_t>() + entry["bytes_once"].get<int64_t>());
  }
  EXPECT_EQ(sent["bytes"], all);
  EXPECT_EQ(sent["messages"], messages);
  for (const ordered_json& level : sent["levels"]) {
    EXPECT_EQ(level["bytes"], by_level[level["level"]]);
    EXPECT_EQ(level["bytes"], counted.bytes(level["level"] == "package" ? 0 : level["level"] == "node" ? 1 : 2));
  }
}

}  // namespace
}  // namespace strata::step
