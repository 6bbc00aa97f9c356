// strata train: train a job, or explain what a step of it would do

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/ranks.h"
#include "cli/verb.h"
#include "core/error.h"
#include "device/device.h"
#include "device/threads.h"
#include "job/placement.h"
#include "mpi/world.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/run_files.h"
#include "report/tensorboard.h"
#include "report/trace.h"
#include "step/build.h"
#include "step/explain.h"
#include "train/alone.h"
#include "train/signals.h"
#include "train/team.h"
#include "train/trainer.h"

namespace strata::cli {

namespace {

struct Arguments {
  JobArguments job;
  int64_t ranks = 0, rank = 0;
  bool explain = false, replace = false, json = false;
};

/// The job on the levels of the machine that runs it, where it gives none.
job::Job on_this_machine(job::Job job, const Team& team) {
  if (team.ranks > 1 && job.mesh.levels.empty() && job.run.machine.empty()) {
    if (team.detected.empty())
      throw input_error(
          "mesh.levels is not given, and the ranks lie on their nodes in no order that levels could have: give "
          "mesh.levels, or place ranks node by node, as many on each");
    job.mesh.levels = team.detected;
  }
  return job;
}

/// Each node has one memory: a tree that says otherwise is a made-up one, or a mistake.
void warn_of_contradiction(const job::Job& job, const Team& team) {
  if (team.ranks == 1 || team.rank != 0 || team.detected.empty()) return;
  const auto levels = job::levels_of(job, team.ranks);
  const int64_t on_node = team.detected[0].width * team.detected[1].width;
  int64_t inner = 1;
  bool fits = false;
  std::string text;
  for (const machine::Level& level : levels) {
    fits |= inner == on_node;
    inner *= level.width;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", level.width, level.name);
  }
  fits |= inner == on_node;
  if (!fits)
    std::fprintf(stderr,
                 "strata: note: the levels of this run (%s) have none of %lld ranks, but so many share a node here\n",
                 text.c_str(), static_cast<long long>(on_node));
}

/// As many as mesh.levels has, if it gives all widths.
int64_t ranks_of(const job::Job& job) {
  int64_t ranks = 1;
  for (const machine::Level& level : job.mesh.levels) ranks *= std::max<int64_t>(level.width, 1);
  return ranks;
}

void explain(const Arguments& arguments, const job::Job& job) {
  const int64_t ranks = arguments.ranks > 0 ? arguments.ranks : ranks_of(job);
  if (arguments.rank >= ranks) throw input_error("--rank {}: there are ranks 0 to {}", arguments.rank, ranks - 1);
  const step::Request request{.job = job, .ranks = ranks, .rank = arguments.rank};
  const auto planner = device::make_planner(static_cast<int>(job.run.threads));
  const step::Program program = step::build(request, step::Goal::train, *planner);
  if (arguments.json)
    print_json(step::explain_json(request, program, *planner));
  else
    print(step::explain(request, program, *planner));
}

/// The run's folder and log, made when the run has found nothing wrong and begins.
class RunFiles : public train::Observer {
 public:
  explicit RunFiles(const job::Job& job) : job_(job) {}
  void on_start(const train::RunStart& start) override {
    if (start.rank == 0) folder_.emplace(job_.run.folder, job_);
    log_.emplace(report::open_log(job_.run.folder, start.rank));
    log_->on_start(start);
  }
  void on_step(const train::StepReport& step) override { log_->on_step(step); }
  void on_timeline(const train::TimelineReport& timeline) override { log_->on_timeline(timeline); }
  void on_validation(const train::ValidationReport& validation) override { log_->on_validation(validation); }
  void on_saved(int64_t step, const std::filesystem::path& folder) override { log_->on_saved(step, folder); }
  void on_end(const train::RunEnd& end) override { log_->on_end(end); }
  void failed(const std::exception& error) {
    if (log_) log_->failed(error);
  }

 private:
  const job::Job& job_;
  std::optional<report::RunFolder> folder_;
  std::optional<report::LogListener> log_;
};

void train_on(const Team& team, const Arguments& arguments) {
  std::optional<comm::Control> control;
  std::optional<job::Job> loaded;
  const double first_timeout = 600;  // until the job says how long
  if (team.transport) control.emplace(*team.transport, first_timeout);
  train::together(control ? &*control : nullptr, "reading the job", [&] {
    loaded = on_this_machine(arguments.job.load(), team);
    train::check_trainable(*loaded);
  });
  const job::Job& job = *loaded;
  const auto threads = static_cast<int>(job.run.threads);
  const execute::Peers peers{team.transport, job.run.timeout, job.run.thread_a_level};
  warn_of_contradiction(job, team);

  RunFiles files(job);
  const auto device = device::make_cpu(threads);
  const auto run = [&](std::vector<train::Observer*> observers) {
    try {
      return train::train(job, *device, observers, arguments.replace, peers);
    } catch (const std::exception& error) {
      files.failed(error);
      throw;
    }
  };
  if (team.rank != 0) {
    const train::RunEnd end = run({&files});
    if (end.interrupted) throw Exit{static_cast<int>(Fault::interrupted)};
    return;
  }
  const DType compute = job.precision.compute;
  const report::Peak peak{train::measure_product_rate(*device::make_cpu(threads), compute),
                          train::product_rate_name(compute)};
  report::Progress progress({.out = arguments.json ? stderr : stdout, .peak = peak});
  report::Metrics metrics(peak);
  report::TensorBoard tensorboard;
  report::TraceFiles traces;
  const train::RunEnd end = run({&files, &metrics, &tensorboard, &traces, &progress});
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

void train(const Arguments& arguments) {
  if (arguments.explain) return explain(arguments, arguments.job.load());
  if (arguments.ranks > 0)
    throw input_error(
        "--ranks {} plans a run (with --explain); to train on several ranks, start them: mpirun -n {} "
        "strata train ..., or srun",
        arguments.ranks, arguments.ranks);
  int threads = 1;
  bool thread_a_level = false;
  double timeout = 600;
  try {
    const job::Job job = arguments.job.load();
    threads = static_cast<int>(job.run.threads);
    thread_a_level = job.run.thread_a_level;
    timeout = job.run.timeout;
  } catch (const Error&) {
    if (!mpi::launched()) throw;  // told once all ranks can hear of it
  }
  device::prepare_threads(threads, mpi::ranks_on_node(), program_arguments());
  // Asked to stop before its first step, a run stops after it.
  const train::StopRequest from_the_start;
  // A reader that goes away (head, a lost terminal) costs output, never the run.
  std::signal(SIGPIPE, SIG_IGN);
  with_ranks(thread_a_level, timeout, arguments.json, [&](const Team& team) { train_on(team, arguments); });
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
  verb->add_option("--rank", arguments->rank, "With --explain: whose program; pipeline stages have different ones")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  add_json(*verb, arguments->json);
  verb->callback([arguments] { train(*arguments); });
}

}  // namespace strata::cli
