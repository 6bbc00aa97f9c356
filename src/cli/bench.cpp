// strata bench: the one bench driver. Checks what it times: a step must be finite, repeatable to the bit and allocate nothing.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_comm.h"
#include "cli/bench_kernels.h"
#include "cli/bench_placements.h"
#include "cli/bench_region.h"
#include "cli/bench_wires.h"
#include "cli/verb.h"
#include "core/allocations.h"
#include "core/error.h"
#include "core/process.h"
#include "core/random.h"
#include "core/text.h"
#include "device/device.h"
#include "device/threads.h"
#include "model/forward.h"
#include "ops/cost.h"
#include "train/alone.h"
#include "train/runner.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string model = "quickstart", dtype = "fp32", recompute = "none";
  int64_t batch = 4, sequence = 0, accumulation = 1;
  int threads = 1, steps = 5;
  bool json = false;
};

/// One operation kind's part in the step.
struct KindTime {
  int64_t runs = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

job::Job bench_job(const Arguments& arguments) {
  job::Job job;
  job.model = job::load_preset(arguments.model);
  job.batch.micro = arguments.batch;
  job.batch.global = arguments.batch * arguments.accumulation;
  job.batch.sequence = arguments.sequence > 0 ? arguments.sequence : job.model.sequence;
  if (job.batch.sequence > job.model.sequence)
    throw input_error("--seq {} is longer than {}'s longest sequence, {}", job.batch.sequence, arguments.model,
                      job.model.sequence);
  job.precision.compute = compute_type(arguments.dtype);
  for (auto recompute : {job::Recompute::none, job::Recompute::selective, job::Recompute::full})
    if (job::name_of(recompute) == arguments.recompute) job.schedule.recompute = recompute;
  job.optimizer.weight_decay = 0.1;
  job.run.threads = arguments.threads;
  return job;
}

/// A run of a few steps on random tokens; the same tokens each time.
struct Bench {
  explicit Bench(const Arguments& arguments)
      : job(bench_job(arguments)), device(device::make_cpu(arguments.threads)), runner(job, *device, {.train = true}) {}

  void restart() { runner.initialise(1); }

  train::Runner::StepOutcome step(int64_t number) {
    const auto row = static_cast<size_t>(job.batch.micro * (job.batch.sequence + 1));
    std::vector<int32_t> tokens(row);
    int64_t counted = 0;
    for (int64_t m = 0; m < job.batch.global / job.batch.micro; ++m) {
      for (size_t i = 0; i < row; ++i)
        tokens[i] = static_cast<int32_t>(philox(static_cast<uint64_t>(number), i, static_cast<uint64_t>(m))[0] %
                                         static_cast<uint32_t>(job.model.vocab));
      counted += runner.fill(step::Goal::train, static_cast<int>(m), tokens, 0);
    }
    const ops::StepInputs inputs = train::step_inputs(job, number, number, counted, 1e-4);
    const auto begin = std::chrono::steady_clock::now();
    train::Runner::StepOutcome outcome = runner.train_step(inputs);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!std::isfinite(outcome.loss_sum)) throw run_error("step {}: the loss is not finite", number);
    return outcome;
  }

  job::Job job;
  std::unique_ptr<device::Device> device;
  train::Runner runner;
  double seconds = 0;  ///< of the last step
};

std::map<std::string, KindTime> by_kind(const execute::Executor& executor) {
  std::map<std::string, KindTime> result;
  const step::Program& program = executor.program();
  std::vector<int64_t> runs(program.blocks.size());
  for (const step::Task& task : program.tasks)
    if (const auto* compute = std::get_if<step::Compute>(&task.work)) ++runs[static_cast<size_t>(compute->block)];
  for (size_t b = 0; b < program.blocks.size(); ++b)
    for (size_t o = 0; o < program.blocks[b].ops.size(); ++o) {
      const ops::Op& op = program.blocks[b].ops[o];
      const ops::Cost cost = ops::cost(op, program.blocks[b].tensors);
      KindTime& kind = result[std::string(ops::name_of(op.kind))];
      kind.runs += runs[b];
      kind.seconds += executor.operation_seconds()[b][o];
      kind.flops += cost.flops * static_cast<double>(runs[b]);
      kind.bytes += cost.bytes * static_cast<double>(runs[b]);
    }
  return result;
}

bool is_product(const std::string& kind) { return kind.starts_with("linear") || kind.starts_with("attention"); }

void bench_step(const Arguments& arguments) {
  device::prepare_threads(arguments.threads, 1, program_arguments());
  Bench bench(arguments);
  std::vector<double> losses[2], seconds;
  int64_t allocations = 0, library_allocations = 0;
  for (auto& round : losses) {
    bench.restart();
    round.push_back(bench.step(0).loss_sum);
    round.push_back(bench.step(1).loss_sum);
  }
  const bool repeatable = losses[0] == losses[1];
  for (int i = 0; i < arguments.steps; ++i) {
    const auto counts = bench.step(2 + i).allocations;
    allocations += counts.ours;
    library_allocations += counts.libraries;
    seconds.push_back(bench.seconds);
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double tokens = static_cast<double>(bench.job.batch.global * bench.job.batch.sequence);

  execute::Executor& executor = bench.runner.executor(step::Goal::train);
  executor.time_operations();
  bench.step(2 + arguments.steps);
  const double timed = bench.seconds;
  const auto kinds = by_kind(executor);
  double product_seconds = 0;  // as part of the step
  for (const auto& [name, kind] : kinds)
    if (is_product(name)) product_seconds += kind.seconds;
  const int64_t allocated = bench.device->peak_bytes();
  const train::ProductsAlone alone =
      train::products_alone(bench.runner.program(step::Goal::train), *device::make_cpu(arguments.threads));

  if (arguments.json) {
    Json operations = Json::array();
    for (const auto& [name, kind] : kinds)
      operations.push_back({{"kind", name},
                            {"runs", kind.runs},
                            {"ms", kind.seconds * 1e3},
                            {"gflops", kind.flops / kind.seconds / 1e9},
                            {"gb_per_s", kind.bytes / kind.seconds / 1e9}});
    print_json({{"model", arguments.model},
                {"batch", arguments.batch},
                {"seq", bench.job.batch.sequence},
                {"dtype", arguments.dtype},
                {"threads", arguments.threads},
                {"device", bench.device->description()},
                {"tokens_per_s", tokens / median},
                {"ms_per_step", median * 1e3},
                {"gemm_ms", alone.seconds * 1e3},
                {"gemm_gflops", alone.flops / alone.seconds / 1e9},
                {"gemm_fraction", alone.seconds / median},
                {"gemm_in_step_ms", product_seconds * 1e3},
                {"gemm_in_step_gflops", alone.flops / product_seconds / 1e9},
                {"model_gflops",
                 model::train_flops_per_token(bench.job.model, bench.job.batch.sequence) * tokens / median / 1e9},
                {"peak_bytes_planned", bench.runner.planned_bytes()},
                {"peak_bytes_measured", allocated},
                {"peak_bytes_resident", peak_resident_bytes()},
                {"repeatable", repeatable},
                {"allocations", allocations::watching() ? Json(allocations) : Json()},
                {"library_allocations", allocations::watching() ? Json(library_allocations) : Json()},
                {"operations", operations}});
  } else {
    print_line(fmt::format("{}, {} x {} tokens, {}, {}", arguments.model, bench.job.batch.global,
                           bench.job.batch.sequence, arguments.dtype, bench.device->description()));
    print_line(fmt::format("  step       {:.1f} ms median of {} ({:.1f} to {:.1f}), {:.0f} tokens/s", median * 1e3,
                           arguments.steps, seconds.front() * 1e3, seconds.back() * 1e3, tokens / median));
    print_line(fmt::format(
        "  products   {:.1f} ms alone = {:.1f} % of a step, {:.1f} GFLOP/s; inside it {:.1f} ms, {:.1f} GFLOP/s "
        "(linears and causal attention)",
        alone.seconds * 1e3, 100 * alone.seconds / median, alone.flops / alone.seconds / 1e9, product_seconds * 1e3,
        alone.flops / product_seconds / 1e9));
    print_line(fmt::format("  memory     {} planned, {} allocated, {} resident at the process's peak",
                           human_bytes(bench.runner.planned_bytes()), human_bytes(allocated),
                           human_bytes(peak_resident_bytes())));
    const std::string counted = allocations::watching()
                                    ? fmt::format("{} (and {} by oneDNN itself)", allocations, library_allocations)
                                    : "not counted in this build";
    print_line(fmt::format("  checks     two runs equal to the bit: {}; heap allocations inside steps: {}",
                           repeatable ? "yes" : "NO", counted));
    print_line(
        fmt::format("  {:<24} {:>6} {:>10} {:>7} {:>9} {:>8}", "operation", "runs", "ms", "share", "GFLOP/s", "GB/s"));
    std::vector<std::pair<std::string, KindTime>> sorted(kinds.begin(), kinds.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    for (const auto& [name, kind] : sorted)
      print_line(fmt::format("  {:<24} {:>6} {:>10.2f} {:>6.1f}% {:>9.1f} {:>8.1f}", name, kind.runs,
                             kind.seconds * 1e3, 100 * kind.seconds / timed, kind.flops / kind.seconds / 1e9,
                             kind.bytes / kind.seconds / 1e9));
  }
  if (!repeatable || allocations > 0) throw Exit{static_cast<int>(Fault::run)};
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("bench", "Time and check what Strata does, on this machine");
  verb->require_subcommand(1);
  CLI::App* step = verb->add_subcommand("step", "Training steps of a model on random tokens: where the time goes");
  step->add_option("--model", arguments->model, "Preset");
  step->add_option("--batch", arguments->batch, "Sequences in a micro-batch")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  step->add_option("--accumulation", arguments->accumulation, "Micro-batches a step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  step->add_option("--seq", arguments->sequence, "Tokens in a sequence (default: the model's longest)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  add_dtype(*step, arguments->dtype);
  step->add_option("--recompute", arguments->recompute, "What is made again")
      ->check(CLI::IsMember({"none", "selective", "full"}));
  step->add_option("--threads", arguments->threads, "Threads")->check(CLI::Range(1, 1024));
  step->add_option("--steps", arguments->steps, "Steps to time, after two to warm up")->check(CLI::Range(1, 10000));
  add_json(*step, arguments->json);
  step->callback([arguments] { bench_step(*arguments); });
  add_bench_kernels(*verb);
  add_bench_wires(*verb);
  add_bench_comm(*verb);
  add_bench_placements(*verb);
  add_bench_region(*verb);
}

}  // namespace strata::cli
