// strata train: train a job, or explain what a step of it would do

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/verb.h"
#include "core/error.h"
#include "device/device.h"
#include "device/threads.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/run_files.h"
#include "report/tensorboard.h"
#include "step/build.h"
#include "step/explain.h"
#include "train/alone.h"
#include "train/trainer.h"

namespace strata::cli {

namespace {

struct Arguments {
  JobArguments job;
  int64_t ranks = 0;
  bool explain = false, replace = false, json = false;
};

void explain(const Arguments& arguments, const job::Job& job) {
  const step::Request request{.job = job, .ranks = std::max<int64_t>(arguments.ranks, 1)};
  const auto planner = device::make_planner(static_cast<int>(job.run.threads));
  const step::Program program = step::build(request, step::Goal::train, *planner);
  if (arguments.json)
    print_json(step::explain_json(request, program));
  else
    print(step::explain(request, program));
}

/// The run's folder and log, made when the run has found nothing wrong and begins.
class RunFiles : public train::Observer {
 public:
  explicit RunFiles(const job::Job& job) : job_(job) {}
  void on_start(const train::RunStart& start) override {
    folder_.emplace(job_.run.folder, job_);
    log_.emplace(report::open_log(folder_->path(), 0));
    log_->on_start(start);
  }
  void on_step(const train::StepReport& step) override { log_->on_step(step); }
  void on_validation(const train::ValidationReport& validation) override { log_->on_validation(validation); }
  void on_saved(int64_t step, const std::filesystem::path& folder) override { log_->on_saved(step, folder); }
  void on_end(const train::RunEnd& end) override { log_->on_end(end); }

 private:
  const job::Job& job_;
  std::optional<report::RunFolder> folder_;
  std::optional<report::LogListener> log_;
};

void train(const Arguments& arguments) {
  const job::Job job = arguments.job.load();
  if (arguments.explain) return explain(arguments, job);
  if (arguments.ranks > 1)
    throw input_error("--ranks {} plans a run (with --explain); this build trains on one rank", arguments.ranks);
  const auto threads = static_cast<int>(job.run.threads);
  device::prepare_threads(threads, 1, program_arguments());
  train::check_trainable(job);

  // A reader that goes away (head, a lost terminal) costs output, never the run.
  std::signal(SIGPIPE, SIG_IGN);
  RunFiles files(job);
  const DType compute = job.precision.compute;
  const report::Peak peak{train::measure_product_rate(*device::make_cpu(threads), compute),
                          train::product_rate_name(compute)};
  report::Progress progress({.out = arguments.json ? stderr : stdout, .peak = peak});
  report::Metrics metrics(peak);
  report::TensorBoard tensorboard;
  std::vector<train::Observer*> observers = {&files, &metrics, &tensorboard, &progress};
  const auto device = device::make_cpu(threads);
  const train::RunEnd end = train::train(job, *device, observers, arguments.replace);
  if (arguments.json)
    print_json({{"steps", end.step},
                {"skipped", end.skipped},
                {"loss", end.loss},
                {"seconds", end.seconds},
                {"interrupted", end.interrupted},
                {"saved", end.saved.string()},
                {"folder", job.run.folder}});
  else
    std::clearerr(stdout);
  if (end.interrupted) throw Exit{static_cast<int>(Fault::interrupted)};
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a job; with --explain, show what one step of it does");
  add_job(*verb, arguments->job);
  verb->add_flag("--explain", arguments->explain,
                 "Print the step program: blocks, schedule, memory. Needs no data and allocates no model");
  verb->add_flag("--replace", arguments->replace,
                 "Let this run take the place of models an earlier run saved in the same folder");
  add_ranks(*verb, arguments->ranks);
  add_json(*verb, arguments->json);
  verb->callback([arguments] { train(*arguments); });
}

}  // namespace strata::cli
