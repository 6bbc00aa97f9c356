// strata verify model | layouts | tokenizer

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "cli/verify_tokenizer.h"
#include "core/error.h"
#include "device/device.h"
#include "device/threads.h"
#include "job/placement.h"
#include "train/layouts.h"
#include "train/verify.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string folder, device = "cpu", dtype = "fp32";
  std::string placement = "ddp";
  int threads = 1;
  int64_t ranks = 1, pipeline = 1;
  job::Pipeline schedule = job::Pipeline::one_f_one_b;
  bool json = false;
};

void verify_model(const Arguments& arguments) {
  device::prepare_threads(arguments.threads, 1, program_arguments());
  if (arguments.ranks > 1 && arguments.device == "poison")
    throw input_error("--device poison: its memory is closed to other ranks; verify on one, or on the cpu");
  const train::VerifyOn on{.compute = compute_type(arguments.dtype),
                           .threads = arguments.threads,
                           .ranks = arguments.ranks,
                           .placement = arguments.placement,
                           .pipeline = arguments.pipeline,
                           .schedule = arguments.schedule,
                           .make_device = arguments.device == "poison" ? device::make_poison : device::make_cpu};
  const train::VerifyReport report = train::verify_model(arguments.folder, on);
  const auto device = on.make_device(on.threads);
  if (arguments.json) {
    Json rows = Json::array();
    for (const train::VerifyRow& row : report.rows)
      rows.push_back({{"what", row.what},
                      {"measure", row.measure},
                      {"deviation", row.deviation},
                      {"bound", row.bound},
                      {"passed", row.passed()}});
    print_json({{"folder", arguments.folder},
                {"model", report.model},
                {"dtype", arguments.dtype},
                {"ranks", arguments.ranks},
                {"placement", arguments.placement},
                {"pipeline", arguments.pipeline},
                {"schedule", job::name_of(arguments.schedule)},
                {"device", device->description()},
                {"passed", report.passed()},
                {"checks", rows}});
  } else {
    print_line(fmt::format("{}: {}", arguments.folder, report.model));
    print_line(
        fmt::format("in {} on {}{}", arguments.dtype, device->description(),
                    arguments.ranks > 1 ? fmt::format(", {} ranks, {}", arguments.ranks, arguments.placement) : "") +
        (arguments.pipeline > 1 ? fmt::format(", {} stages, {}", arguments.pipeline, job::name_of(arguments.schedule))
                                : ""));
    size_t width = 0;
    for (const train::VerifyRow& row : report.rows) width = std::max(width, row.what.size());
    for (const train::VerifyRow& row : report.rows)
      print_line(fmt::format("  {:<{}}  {:>9.2e}  bound {:>7.0e}  {}", row.what, width, row.deviation, row.bound,
                             row.passed() ? "ok" : "MISSED  (" + row.measure + ")"));
    print_line(report.passed() ? "every bound is kept" : "some bound is missed");
  }
  if (!report.passed()) throw Exit{static_cast<int>(Fault::run)};
}

struct LayoutArguments {
  JobArguments job;
  train::LayoutsOn on;
  bool json = false;
};

void verify_layouts(const LayoutArguments& arguments) {
  device::prepare_threads(1, 1, program_arguments());
  const job::Job job = arguments.job.load();
  const auto tell = [&](const train::LayoutRow& row) {
    if (arguments.json) return;
    const std::string found =
        row.same ? "same bits" : fmt::format("{:.1e} of the loss, first in {}", row.deviation, row.first);
    print_line(
        fmt::format("  {:<64} {}{}", row.layout, found, row.passed() ? "" : "   MISSED, against " + row.against));
  };
  if (!arguments.json)
    print_line(
        fmt::format("{} ranks as threads, {} steps, fp32 on full wires", arguments.on.ranks, arguments.on.steps));
  const std::vector<train::LayoutRow> rows = train::verify_layouts(job, arguments.on, tell);
  const auto passed = std::count_if(rows.begin(), rows.end(), [](const train::LayoutRow& row) { return row.passed(); });
  const auto same = std::count_if(rows.begin(), rows.end(), [](const train::LayoutRow& row) { return row.same; });
  if (arguments.json) {
    Json list = Json::array();
    for (const train::LayoutRow& row : rows)
      list.push_back({{"layout", row.layout},
                      {"against", row.against},
                      {"same_bits", row.same},
                      {"bitwise_wanted", row.bitwise},
                      {"deviation", row.deviation},
                      {"first", row.first},
                      {"passed", row.passed()}});
    print_json({{"ranks", arguments.on.ranks}, {"layouts", list}, {"passed", passed == std::ssize(rows)}});
  } else {
    print_line(fmt::format("{} layouts: {} with the same bits, {} within 1e-5 of the loss, {} missed", rows.size(),
                           same, passed - same, std::ssize(rows) - passed));
  }
  if (passed != std::ssize(rows)) throw Exit{static_cast<int>(Fault::run)};
}

}  // namespace

void add_verify(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("verify", "Hold what Strata computes against reference numbers");
  verb->require_subcommand(1);
  CLI::App* model =
      verb->add_subcommand("model", "A Hugging Face folder with reference.safetensors: logits, gradients, losses");
  model->add_option("FOLDER", arguments->folder, "config.json, model.safetensors and reference.safetensors")
      ->required();
  add_dtype(*model, arguments->dtype);
  model->add_option("--threads", arguments->threads, "Threads to compute with")->check(CLI::Range(1, 1024));
  model->add_option("--device", arguments->device, "cpu, or poison: the CPU behind memory that faults on host access")
      ->check(CLI::IsMember({"cpu", "poison"}));
  model->add_option("--ranks", arguments->ranks, "Ranks, as threads of this process")->check(CLI::Range(1, 64));
  std::vector<std::string> presets(job::placement_presets().begin(), job::placement_presets().end());
  model->add_option("--placement", arguments->placement, "Placement preset of the ranks, on full wires")
      ->check(CLI::IsMember(presets));
  model->add_option("--pipeline", arguments->pipeline, "Pipeline stages that the ranks are shared out over")
      ->check(CLI::Range(1, 64));
  std::map<std::string, job::Pipeline> schedules;
  for (const job::Pipeline each : {job::Pipeline::gpipe, job::Pipeline::one_f_one_b, job::Pipeline::interleaved,
                                   job::Pipeline::zb_h1, job::Pipeline::zb_v})
    schedules.emplace(job::name_of(each), each);
  model->add_option("--schedule", arguments->schedule, "Order of forward and backward over the stages")
      ->transform(CLI::CheckedTransformer(schedules));
  add_json(*model, arguments->json);
  model->callback([arguments] { verify_model(*arguments); });
  auto layouts = std::make_shared<LayoutArguments>();
  CLI::App* all = verb->add_subcommand(
      "layouts",
      "A small job trained in every layout of some ranks: placements, pipelines, schedules, recompute, micro-batches");
  add_job(*all, layouts->job);
  all->add_option("--ranks", layouts->on.ranks, "Ranks, as threads of this process")->check(CLI::Range(1, 64));
  all->add_option("--steps", layouts->on.steps, "Steps of each")->check(CLI::Range(1, 1000));
  all->add_option("--micro-batches", layouts->on.micro_batches, "Micro-batches a step")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1024}));
  add_json(*all, layouts->json);
  all->callback([layouts] { verify_layouts(*layouts); });
  add_verify_tokenizer(*verb);
}

}  // namespace strata::cli
