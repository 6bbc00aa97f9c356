// strata bench placements: a job's step under several placements on the ranks at hand, beside what the step program allows on
// the links and the device of a machine file.

#include "cli/bench_placements.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/published.h"
#include "cli/ranks.h"
#include "cli/verb.h"
#include "comm/paced.h"
#include "core/error.h"
#include "core/text.h"
#include "device/device.h"
#include "device/hollow.h"
#include "device/paced.h"
#include "device/threads.h"
#include "files/atomic_file.h"
#include "job/placement.h"
#include "report/bar_chart.h"
#include "report/trace.h"
#include "simulate/cost_model.h"
#include "simulate/schedule.h"
#include "step/build.h"
#include "step/exposed.h"
#include "step/traffic.h"
#include "train/links.h"
#include "train/runner.h"
#include "train/team.h"
#include "train/timelines.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  JobArguments job;
  std::vector<std::string> placements = {"ddp", "zero1", "zero2", "zero3", "hsdp", "zeropp", "zero-topo"};
  std::vector<job::Collectives> collectives = {job::Collectives::flat, job::Collectives::levels};
  std::vector<int64_t> micro_batches = {1, 2, 4, 8};
  std::vector<std::string> paced, aware = {"zero-topo"}, synchronous;
  std::string device = "hollow", chart, machine_file, json_file, traces;
  int64_t ranks = 0, flat_prefetch = 1;
  int steps = 1, warm_up = 1;
  double link_seconds = 0.5;
  bool json = false;
};

struct Case {
  std::string placement;
  job::Collectives collectives;
  int64_t micro_batches;
};

const char* origin_of(job::Collectives collectives) {
  return collectives == job::Collectives::flat ? "as published" : "by level";
}

/// One step's time, as means over ranks; `seconds` is the slowest rank's.
struct Measured {
  double seconds = 0, computing = 0, idle = 0;
  std::array<double, step::purposes> exposed{};
};

Measured from(const step::StepTime& time) {
  Measured result{time.seconds, time.computing, time.idle, {}};
  for (const step::Exposed& each : time.exposed) result.exposed[static_cast<size_t>(each.purpose)] += each.seconds;
  return result;
}

struct Result {
  Case what;
  Measured allowed;
  std::optional<Measured> measured;
  std::vector<int64_t> bytes;  ///< a step sends over each level, from one rank
  int64_t memory = 0;          ///< of one rank
};

/// Whether a case runs as flat rings: as published, but for what was published as aware of the levels.
bool as_flat(const Arguments& arguments, const Case& what) {
  const auto& aware = arguments.aware;
  return what.collectives == job::Collectives::flat &&
         std::find(aware.begin(), aware.end(), what.placement) == aware.end();
}

job::Job job_of(const job::Job& base, const Arguments& arguments, const Case& what, int64_t ranks) {
  const auto& waiting = arguments.synchronous;
  const bool waits = std::find(waiting.begin(), waiting.end(), what.placement) != waiting.end();
  job::Job job = as_flat(arguments, what) ? as_flat_rings(base, what.placement, waits ? 0 : arguments.flat_prefetch)
                                          : by_level(base, what.placement);
  job.batch.global = job.batch.micro * what.micro_batches * (ranks / (job.mesh.tensor * job.mesh.pipeline));
  return job;
}

std::vector<Case> cases_of(const Arguments& arguments) {
  std::vector<Case> cases;
  for (const int64_t micro_batches : arguments.micro_batches)
    for (const job::Collectives collectives : arguments.collectives)
      for (const std::string& placement : arguments.placements)
        cases.push_back({placement, collectives, micro_batches});
  return cases;
}

layout::Widths widths_of(const machine::Machine& machine) {
  layout::Widths widths;
  for (const machine::Level& level : machine.levels) widths.push_back(level.width);
  return widths;
}

/// Numbers of the levels that the program paces itself.
std::vector<size_t> paced_levels(const Arguments& arguments, const machine::Machine& machine) {
  std::vector<size_t> levels;
  for (const std::string& name : arguments.paced) {
    const auto found = std::find_if(machine.levels.begin(), machine.levels.end(),
                                    [&](const machine::Level& level) { return level.name == name; });
    if (found == machine.levels.end()) throw input_error("--pace {}: {} has no such level", name, machine.name);
    levels.push_back(static_cast<size_t>(found - machine.levels.begin()));
  }
  return levels;
}

comm::PacedTransport paced(comm::Transport& transport, const machine::Machine& machine,
                           const std::vector<size_t>& levels) {
  const layout::Widths widths = widths_of(machine);
  std::vector<comm::Pace> paces;
  for (const size_t level : levels) {
    if (machine.links[level].shared_by > 1)
      throw input_error("--pace {}: its links are shared by {} ranks, and a rank can only pace links of its own",
                        machine.levels[level].name, machine.links[level].shared_by);
    paces.push_back({machine.links[level].bandwidth, machine.links[level].latency});
  }
  // The outermost level whose coordinates differ is the one that a message crosses.
  std::vector<int> link_of(static_cast<size_t>(transport.ranks()), -1);
  for (size_t level = widths.size(); level-- > 0;) {
    const auto found = std::find(levels.begin(), levels.end(), level);
    const int link = found == levels.end() ? -1 : static_cast<int>(found - levels.begin());
    for (const int64_t rank : layout::group(widths, transport.rank(), 0, static_cast<int>(level) + 1))
      link_of[static_cast<size_t>(rank)] = link;
  }
  link_of[static_cast<size_t>(transport.rank())] = -1;
  return {transport, std::move(paces), std::move(link_of)};
}

std::unique_ptr<device::Device> device_of(const Arguments& arguments, const machine::Machine& machine, int threads) {
  if (arguments.device == "cpu") return device::make_cpu(threads);
  const auto seconds = [described = machine.device](const ops::Op& op, std::span<const ops::Tensor> tensors) {
    return simulate::op_seconds(described, op, tensors);
  };
  return device::make_paced(arguments.device == "paced" ? device::make_cpu(threads) : device::make_hollow(threads),
                            seconds);
}

/// The same tokens on all ranks: what they are changes no time.
void fill(train::Runner& runner, const job::Job& job) {
  const auto row = static_cast<size_t>(job.batch.micro * (job.batch.sequence + 1));
  std::vector<int32_t> tokens(row);
  for (size_t i = 0; i < row; ++i) tokens[i] = static_cast<int32_t>(i * 7 % static_cast<size_t>(job.model.vocab));
  for (int m = 0; m < runner.program(step::Goal::train).micro_batches; ++m)
    runner.fill(step::Goal::train, m, tokens, 0);
}

Result predict(const step::Program& program, const machine::Machine& machine, const Case& what) {
  Result result;
  result.what = what;
  result.memory = program.arena_bytes;
  result.allowed = from(simulate::step_time(machine, program));
  const step::Traffic traffic = step::traffic(program);
  for (size_t level = 0; level < machine.levels.size(); ++level)
    result.bytes.push_back(traffic.bytes(static_cast<int32_t>(level)));
  return result;
}

std::filesystem::path trace_file(const Arguments& arguments, const Case& what) {
  return std::filesystem::path(arguments.traces) /
         fmt::format("{}-{}-{}.json", what.placement, job::name_of(what.collectives), what.micro_batches);
}

Measured run(const Arguments& arguments, const job::Job& job, train::Runner& runner) {
  if (arguments.device != "hollow") runner.initialise(job.run.seed);
  const int64_t counted = job.batch.global * job.batch.sequence;
  std::vector<Measured> steps;
  for (int number = 0; number < arguments.warm_up + arguments.steps; ++number) {
    const ops::StepInputs inputs = train::step_inputs(job, number, number, counted, 1e-4);
    fill(runner, job);
    if (runner.control()) runner.control()->barrier("beginning a step");
    runner.train_step(inputs);
    const execute::Executor& executor = runner.executor(step::Goal::train);
    const Measured mine = from(step::step_time(executor.program(), executor.timeline()));
    if (number < arguments.warm_up) continue;
    const std::vector<Measured> all =
        runner.control() ? runner.control()->gather(mine, "comparing steps") : std::vector{mine};
    Measured mean;
    const auto ranks = static_cast<double>(all.size());
    for (const Measured& each : all) {
      mean.seconds = std::max(mean.seconds, each.seconds);
      mean.computing += each.computing / ranks;
      mean.idle += each.idle / ranks;
      for (size_t purpose = 0; purpose < mean.exposed.size(); ++purpose)
        mean.exposed[purpose] += each.exposed[purpose] / ranks;
    }
    steps.push_back(mean);
  }
  std::sort(steps.begin(), steps.end(), [](const Measured& a, const Measured& b) { return a.seconds < b.seconds; });
  return steps[steps.size() / 2];
}

// ---- telling

/// Purposes in a table's columns: gathers of weights together, sums of a few values together.
struct Cause {
  const char* name;
  std::vector<step::Purpose> purposes;
};
const std::vector<Cause>& causes() {
  using step::Purpose;
  static const std::vector<Cause> all = {
      {"weights", {Purpose::weights_forward, Purpose::weights_backward}},
      {"gradients", {Purpose::gradients}},
      {"reduction", {Purpose::reduction}},
      {"update", {Purpose::update}},
      {"stages", {Purpose::activations, Purpose::activation_gradients, Purpose::tie}},
      {"sums", {Purpose::norm, Purpose::loss}}};
  return all;
}

double of(const Measured& time, const Cause& cause) {
  double sum = 0;
  for (const step::Purpose purpose : cause.purposes) sum += time.exposed[static_cast<size_t>(purpose)];
  return sum;
}

const Measured& best_known(const Result& result) { return result.measured ? *result.measured : result.allowed; }

std::string header(const machine::Machine& machine, bool ran) {
  std::string text = fmt::format("{:<24} {:>3} {:>9}", "placement", "A", "allowed s");
  if (ran) text += fmt::format(" {:>9} {:>6}", "step s", "share");
  text += fmt::format(" {:>9}", "compute s");
  for (const Cause& cause : causes()) text += fmt::format(" {:>9}", cause.name);
  for (const machine::Level& level : machine.levels) text += fmt::format(" {:>10}", level.name + " MB");
  return text + fmt::format(" {:>10}", "memory MB");
}

std::string row(const Result& result) {
  const Measured& time = best_known(result);
  std::string text =
      fmt::format("{:<24} {:>3} {:>9.3f}", result.what.placement + " " + origin_of(result.what.collectives),
                  result.what.micro_batches, result.allowed.seconds);
  if (result.measured)
    text += fmt::format(" {:>9.3f} {:>6.2f}", time.seconds, result.allowed.seconds / result.measured->seconds);
  text += fmt::format(" {:>9.3f}", time.computing);
  for (const Cause& cause : causes()) text += fmt::format(" {:>9.3f}", of(time, cause));
  for (const int64_t bytes : result.bytes) text += fmt::format(" {:>10.2f}", static_cast<double>(bytes) / 1e6);
  return text + fmt::format(" {:>10.1f}", static_cast<double>(result.memory) / 1e6);
}

Json time_json(const Measured& time) {
  Json exposed;
  for (int purpose = 0; purpose < step::purposes; ++purpose)
    exposed[std::string(step::name_of(static_cast<step::Purpose>(purpose)))] =
        time.exposed[static_cast<size_t>(purpose)];
  return {{"step_s", time.seconds}, {"compute_s", time.computing}, {"idle_s", time.idle}, {"exposed_s", exposed}};
}

Json result_json(const Result& result, const machine::Machine& machine) {
  Json bytes;
  for (size_t level = 0; level < result.bytes.size(); ++level) bytes[machine.levels[level].name] = result.bytes[level];
  Json object = {{"placement", result.what.placement},
                 {"collectives", job::name_of(result.what.collectives)},
                 {"micro_batches", result.what.micro_batches},
                 {"allowed", time_json(result.allowed)}};
  if (result.measured) object["measured"] = time_json(*result.measured);
  object["bytes_sent_by_a_rank"] = bytes;
  object["memory_bytes"] = result.memory;
  return object;
}

const Result* find(const std::vector<Result>& results, const std::string& placement, job::Collectives collectives,
                   int64_t micro_batches) {
  for (const Result& result : results)
    if (result.what.placement == placement && result.what.collectives == collectives &&
        result.what.micro_batches == micro_batches)
      return &result;
  return nullptr;
}

/// Calls `tell(gain, collectives, micro_batches, ratio by what was measured (else allowed), ratio by what is allowed)` for all
/// pairs that are there.
template <class Tell>
void each_gain(const Arguments& arguments, const std::vector<Result>& results, const Tell& tell) {
  for (const int64_t micro_batches : arguments.micro_batches)
    for (const auto collectives : {job::Collectives::flat, job::Collectives::levels})
      for (const Gain& gain : gains) {
        const Result* of = find(results, gain.of, collectives, micro_batches);
        const Result* over = find(results, gain.over, collectives, micro_batches);
        if (of && over)
          tell(gain, collectives, micro_batches, best_known(*over).seconds / best_known(*of).seconds,
               over->allowed.seconds / of->allowed.seconds);
      }
}

report::BarChart chart_of(const Arguments& arguments, const std::vector<Result>& results, int64_t ranks, bool ran) {
  report::BarChart chart{.title = fmt::format("A step on {} ranks", ranks),
                         .unit = "s",
                         .parts = {"compute"},
                         .mark = ran ? "allowed" : "",
                         .groups = {}};
  for (const Cause& cause : causes()) chart.parts.emplace_back(cause.name);
  chart.parts.emplace_back("other");
  for (const int64_t micro_batches : arguments.micro_batches)
    for (const job::Collectives collectives : arguments.collectives) {
      report::BarGroup group{
          fmt::format("{} micro-batch{}, {}", micro_batches, micro_batches == 1 ? "" : "es", origin_of(collectives)),
          {}};
      for (const std::string& placement : arguments.placements) {
        const Result* result = find(results, placement, collectives, micro_batches);
        if (!result) continue;
        const Measured& time = best_known(*result);
        report::Bar bar{placement, {time.computing}, ran ? result->allowed.seconds : 0};
        double told = time.computing;
        for (const Cause& cause : causes()) bar.parts.push_back(of(time, cause)), told += of(time, cause);
        bar.parts.push_back(std::max(0.0, time.seconds - told));
        group.bars.push_back(std::move(bar));
      }
      chart.groups.push_back(std::move(group));
    }
  return chart;
}

void tell_end(const Arguments& arguments, const std::vector<Result>& results, const machine::Machine& machine,
              int64_t ranks, bool ran) {
  if (!arguments.chart.empty())
    files::write_text(arguments.chart, report::svg(chart_of(arguments, results, ranks, ran)));
  if (arguments.json || !arguments.json_file.empty()) {
    Json cases = Json::array(), ratios = Json::array(), levels = Json::array();
    for (const Result& result : results) cases.push_back(result_json(result, machine));
    each_gain(
        arguments, results,
        [&](const Gain& gain, job::Collectives collectives, int64_t micro_batches, double measured, double allowed) {
          Json object = {{"of", gain.of},
                         {"over", gain.over},
                         {"collectives", job::name_of(collectives)},
                         {"micro_batches", micro_batches},
                         {"published", gain.published},
                         {"allowed", allowed}};
          if (ran) object["measured"] = measured;
          ratios.push_back(object);
        });
    for (size_t level = 0; level < machine.levels.size(); ++level)
      levels.push_back({{"name", machine.levels[level].name},
                        {"width", machine.levels[level].width},
                        {"bandwidth", machine.links[level].bandwidth},
                        {"latency", machine.links[level].latency},
                        {"shared_by", machine.links[level].shared_by},
                        {"source", machine.links[level].source}});
    const Json all = {{"ranks", ranks}, {"levels", levels}, {"cases", cases}, {"ratios", ratios}};
    if (!arguments.json_file.empty()) files::write_text(arguments.json_file, all.dump(2) + "\n");
    if (arguments.json) return print_json(all);
  }
  print_line("");
  print_line(fmt::format("{:<24} {:>3} {:<14} {:>9} {:>9}{}", "ratio", "A", "collectives", "published", "allowed",
                         ran ? fmt::format(" {:>9} {:>6}", "measured", "share") : ""));
  each_gain(
      arguments, results,
      [&](const Gain& gain, job::Collectives collectives, int64_t micro_batches, double measured, double allowed) {
        print_line(fmt::format("{:<24} {:>3} {:<14} {:>9.3f} {:>9.3f}{}", fmt::format("{} over {}", gain.of, gain.over),
                               micro_batches, origin_of(collectives), gain.published, allowed,
                               ran ? fmt::format(" {:>9.3f} {:>6.2f}", measured, measured / allowed) : ""));
      });
}

void tell_start(const Arguments& arguments, const machine::Machine& nominal, const machine::Machine& machine,
                int64_t ranks, bool ran) {
  if (arguments.json) return;
  print_line(fmt::format("{} ranks; {}", ranks, ran ? arguments.device + " devices" : "not run, priced only"));
  print_line(fmt::format("{:>10} {:>6} {:>12} {:>12} {:>12} {:>12} {:>10}", "level", "width", "nominal MB/s",
                         "MB/s a link", "MB/s alone", "latency us", "shared by"));
  for (size_t level = 0; level < machine.levels.size(); ++level)
    print_line(fmt::format("{:>10} {:>6} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.1f} {:>10}", machine.levels[level].name,
                           machine.levels[level].width, nominal.links[level].bandwidth / 1e6,
                           machine.links[level].bandwidth / 1e6, machine.links[level].rate(1) / 1e6,
                           machine.links[level].latency * 1e6, machine.links[level].shared_by));
  print_line("");
  print_line(header(machine, ran));
}

void bench_on(const Team& team, const Arguments& arguments) {
  std::optional<comm::Control> control;
  if (team.transport) control.emplace(*team.transport, 600);
  const bool tells = team.rank == 0, ran = team.transport != nullptr;
  if (ran && arguments.ranks > 0)
    throw input_error("--ranks {} prices steps without running them: leave it out under mpirun", arguments.ranks);
  const int64_t ranks = ran ? team.ranks : std::max<int64_t>(arguments.ranks, 1);
  job::Job base;
  machine::Machine nominal;
  std::vector<size_t> paces;
  train::together(control ? &*control : nullptr, "reading the job", [&] {
    base = arguments.job.load();
    nominal = job::machine_of(base, ranks);
    paces = paced_levels(arguments, nominal);
  });
  std::optional<comm::PacedTransport> transport;
  machine::Machine machine = nominal;
  if (ran) {
    transport.emplace(paced(*team.transport, nominal, paces));
    machine.links = train::measure_links(*transport, widths_of(nominal), nominal.links, arguments.link_seconds);
  }
  if (tells) tell_start(arguments, nominal, machine, ranks, ran);
  if (tells && !arguments.machine_file.empty()) {
    // With the widths of the file that it is from, for other numbers of ranks as well.
    machine::Machine measured = machine;
    measured.levels = job::load_machine(base.run.machine).levels;
    files::write_text(arguments.machine_file, machine::show(measured));
  }

  const auto threads = static_cast<int>(base.run.threads);
  const auto planner = device::make_planner(threads);
  std::vector<Result> results;
  for (const Case& what : cases_of(arguments)) {
    const job::Job job = job_of(base, arguments, what, ranks);
    // What was published as aware of the levels is one job, shown twice.
    const auto same = std::find_if(results.begin(), results.end(), [&](const Result& each) {
      return each.what.placement == what.placement && each.what.micro_batches == what.micro_batches &&
             as_flat(arguments, each.what) == as_flat(arguments, what);
    });
    if (same != results.end()) {
      results.push_back(Result(*same));
      results.back().what = what;
    } else if (ran) {
      const auto device = device_of(arguments, machine, threads);
      train::Runner runner(job, *device, {.train = true}, {&*transport, job.run.timeout, false});
      results.push_back(predict(runner.program(step::Goal::train), machine, what));
      results.back().measured = run(arguments, job, runner);
      if (!arguments.traces.empty()) {
        const train::TimelineReport timeline =
            train::collect_timelines(runner.control(), runner.executor(step::Goal::train), 0);
        if (tells) report::write_trace(trace_file(arguments, what), timeline);
      }
    } else {
      results.push_back(
          predict(step::build({.job = job, .ranks = ranks, .rank = 0}, step::Goal::train, *planner), machine, what));
    }
    if (tells && !arguments.json) print_line(row(results.back()));
  }
  if (tells) tell_end(arguments, results, machine, ranks, ran);
}

void bench(const Arguments& arguments) {
  device::prepare_threads(1, mpi::ranks_on_node(), program_arguments());
  with_ranks(false, 600, arguments.json, [&](const Team& team) { bench_on(team, arguments); });
}

}  // namespace

void add_bench_placements(CLI::App& bench_verb) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = bench_verb.add_subcommand(
      "placements",
      "A job's step under several placements, each with collectives as published and by level: on the ranks that "
      "mpirun "
      "started, beside what its program allows on the links measured; without mpirun that alone");
  add_job(*verb, arguments->job);
  verb->add_option("--placements", arguments->placements, "Presets")
      ->delimiter(',')
      ->check(
          CLI::IsMember(std::vector<std::string>(job::placement_presets().begin(), job::placement_presets().end())));
  verb->add_option("--collectives", arguments->collectives,
                   "flat: as published, one ring over all ranks that take part; levels: hop by hop")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(std::map<std::string, job::Collectives>{
          {"flat", job::Collectives::flat}, {"levels", job::Collectives::levels}}));
  verb->add_option("--micro-batches", arguments->micro_batches, "Micro-batches a step")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--flat-prefetch", arguments->flat_prefetch,
                   "schedule.prefetch with flat collectives (by level: the job's)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  verb->add_option(
          "--device", arguments->device,
          "hollow: operations only last as long as the machine file says; paced: they are done as well; cpu: as "
          "fast as it can")
      ->check(CLI::IsMember({"hollow", "paced", "cpu"}));
  verb->add_option("--pace", arguments->paced, "Levels whose links the program itself slows to the machine file's")
      ->delimiter(',');
  verb->add_option("--aware", arguments->aware, "Placements published with collectives by level, not as flat rings")
      ->delimiter(',');
  verb->add_option("--synchronous", arguments->synchronous,
                   "Placements of which, as published, no communication overlaps with computing")
      ->delimiter(',');
  verb->add_option("--steps", arguments->steps, "Steps to time; the median counts")->check(CLI::Range(1, 1000));
  verb->add_option("--warm-up", arguments->warm_up, "Steps before them")->check(CLI::Range(0, 1000));
  verb->add_option("--link-seconds", arguments->link_seconds, "How long each level's links are measured")
      ->check(CLI::Range(0.001, 60.0));
  verb->add_option("--chart", arguments->chart, "Draw the steps as this SVG file");
  verb->add_option("--json-file", arguments->json_file, "Write what --json prints here, and print the table");
  verb->add_option("--traces", arguments->traces,
                   "Write each case's last step here, PLACEMENT-COLLECTIVES-MICRO_BATCHES.json for Perfetto");
  verb->add_option("--machine-file", arguments->machine_file, "Write the machine with its measured links here");
  add_ranks(*verb, arguments->ranks);
  add_json(*verb, arguments->json);
  verb->callback([arguments] { bench(*arguments); });
}

}  // namespace strata::cli
