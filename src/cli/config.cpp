// strata config check | show | keys

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "core/error.h"
#include "core/text.h"
#include "job/batch.h"
#include "job/keys.h"
#include "job/placement.h"
#include "machine/levels.h"
#include "train/trainer.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  JobArguments job;
  int64_t ranks = 0;
  bool json = false;
};

std::string model_line(const model::Config& config) {
  const std::string name = config.preset.empty() ? std::string(model::name_of(config.family))
                                                 : fmt::format("{} ({})", config.preset, model::name_of(config.family));
  return fmt::format(
      "{}: {} layers of width {}, {} heads of {}, MLP {}, vocabulary {}, sequences up to {}; {} parameters", name,
      config.layers, config.hidden,
      config.kv_heads == config.heads ? fmt::format("{}", config.heads)
                                      : fmt::format("{}/{}", config.heads, config.kv_heads),
      config.head_dim, config.ffn, config.vocab, config.sequence,
      human_count(static_cast<double>(model::parameter_count(config))));
}

void check(const Arguments& arguments) {
  const job::Job job = arguments.job.load();
  const std::string& file = arguments.job.file;
  const std::vector<std::string> levels = job::level_names(job);
  const std::string scheme = job.placement.preset.empty() ? "" : job.placement.preset + ": ";
  std::string placement = scheme + "its levels are those of machine " + job.run.machine, wires;
  if (!levels.empty()) {
    const job::Sharding sharding = job::resolve_placement(job, levels, file);
    placement = scheme + job::describe(sharding, levels);
    wires = job::describe_wires(sharding, levels);
  }

  std::string batch, mesh;
  Json batch_json, mesh_json;
  if (arguments.ranks > 0) {
    const job::BatchPlan plan = job::resolve_batch(job, arguments.ranks, file);
    const int64_t tokens = plan.global * job.batch.sequence;
    batch = fmt::format("{}; {} tokens a step", job::describe(plan), human_count(static_cast<double>(tokens)));
    batch_json = {{"global", plan.global},
                  {"micro", plan.micro},
                  {"accumulation", plan.accumulation},
                  {"data_parallel", plan.data_parallel},
                  {"ranks", plan.ranks},
                  {"tensor", plan.tensor},
                  {"pipeline", plan.pipeline},
                  {"tokens", tokens}};
    if (!job.mesh.levels.empty()) {
      mesh_json = Json::array();
      for (const machine::Level& level :
           machine::fill_levels(job.mesh.levels, arguments.ranks, file + ": mesh.levels")) {
        mesh += fmt::format("{}{} {}", mesh.empty() ? "" : " x ", level.width, level.name);
        mesh_json.push_back({{"name", level.name}, {"width", level.width}});
      }
    }
  } else {
    batch = fmt::format("{} sequences in micro-batches of {}; --ranks N shows the arithmetic", job.batch.global,
                        job.batch.micro);
  }
  const std::string digest = fmt::format("{:016x}", job::digest(job));
  // A sound job may be meant for planning: say whether this build could train it as well.
  std::string refusal;
  try {
    train::check_trainable(job);
  } catch (const Error& error) {
    refusal = error.what();
  }

  if (arguments.json) {
    print_json({{"file", file},
                {"ok", true},
                {"digest", digest},
                {"model",
                 {{"preset", job.model.preset.empty() ? Json() : Json(job.model.preset)},
                  {"family", model::name_of(job.model.family)},
                  {"parameters", model::parameter_count(job.model)}}},
                {"batch", batch_json},
                {"levels", mesh_json},
                {"placement", placement},
                {"wires", wires.empty() ? Json() : Json(wires)},
                {"trainable", refusal.empty()},
                {"not_trainable_because", refusal.empty() ? Json() : Json(refusal)}});
    return;
  }
  print_line(fmt::format("{}: the job is sound", file));
  print_line(fmt::format("  model      {}", model_line(job.model)));
  print_line(fmt::format("  batch      {}", batch));
  if (!mesh.empty()) print_line(fmt::format("  machine    {} = {} ranks", mesh, arguments.ranks));
  print_line(fmt::format("  placement  {}", placement));
  if (!wires.empty()) print_line(fmt::format("  wires      {}", wires));
  print_line(fmt::format("  digest     {}", digest));
  print_line("  training   " + (refusal.empty() ? "this build can train it" : "not by this build: " + refusal));
}

void show(const Arguments& arguments) {
  const job::Job job = arguments.job.load();
  if (arguments.json)
    print_json(job::to_json(job));
  else
    print(job::show(job));
}

void list_keys(const Arguments& arguments) {
  if (!arguments.json) return print(job::keys_markdown());
  Json list = Json::array();
  for (const job::KeyDoc& key : job::keys())
    list.push_back({{"key", key.name}, {"type", key.type}, {"default", key.fallback}, {"meaning", key.doc}});
  print_json({{"keys", list}});
}

}  // namespace

void add_config(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("config", "Check a job file, show it merged, list its keys");
  verb->require_subcommand(1);

  CLI::App* checked = verb->add_subcommand("check", "Check a job file and print what it comes to");
  add_job(*checked, arguments->job);
  add_ranks(*checked, arguments->ranks);
  add_json(*checked, arguments->json);
  checked->callback([arguments] { check(*arguments); });

  CLI::App* shown = verb->add_subcommand("show", "Print the job with presets, options and defaults merged in");
  add_job(*shown, arguments->job);
  add_json(*shown, arguments->json);
  shown->callback([arguments] { show(*arguments); });

  CLI::App* keys = verb->add_subcommand("keys", "List every key of a job file (Markdown)");
  add_json(*keys, arguments->json);
  keys->callback([arguments] { list_keys(*arguments); });
}

}  // namespace strata::cli
