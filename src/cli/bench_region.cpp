// strata bench region: where the gains that were published for ZeRO++ and the three-level scheme hold together, over what was not
// published: what the network really carried, tokens a rank, micro-batches, and how much the baselines overlapped.

#include "cli/bench_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/published.h"
#include "cli/verb.h"
#include "core/error.h"
#include "device/device.h"
#include "job/placement.h"
#include "simulate/schedule.h"
#include "step/build.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  JobArguments job;
  std::vector<double> shares = {0.1,  0.15, 0.2,  0.25, 0.3,  0.35, 0.4,  0.45, 0.5,
                                0.55, 0.6,  0.65, 0.7,  0.75, 0.8,  0.85, 0.9,  1};
  std::vector<double> inner_shares = {1, 0.75, 0.6, 0.55, 0.5, 0.4, 0.25};
  std::vector<int64_t> tokens = {512, 1024, 2048, 4096}, micro_batches = {1, 2, 4, 8};
  double tolerance = 0.05;
  int64_t ranks = 0;
  bool json = false;
};

enum Scheme { zero3, zeropp, zero_topo, schemes };
constexpr const char* presets[] = {"zero3", "zeropp", "zero-topo"};

struct Point {
  double share = 0, inner_share = 0;
  int64_t tokens = 0, micro_batches = 0;
  bool zero3_overlaps = false, zeropp_overlaps = false;
  double seconds[schemes] = {};
  double by_level = 0;  ///< zero-topo over zero3 with collectives by level as well
  double seconds_of(const std::string& preset) const {
    return seconds[std::find(std::begin(presets), std::end(presets), preset) - std::begin(presets)];
  }
  double ratio(const Gain& gain) const { return seconds_of(gain.over) / seconds_of(gain.of); }
  /// Largest relative distance from what was published.
  double distance() const {
    double most = 0;
    for (const Gain& gain : gains) most = std::max(most, std::abs(ratio(gain) / gain.published - 1));
    return most;
  }
};

void bench(const Arguments& arguments) {
  const job::Job base = arguments.job.load();
  if (arguments.ranks == 0) throw input_error("bench region needs --ranks N");
  machine::Machine machine = job::machine_of(base, arguments.ranks);
  const auto planner = device::make_planner(static_cast<int>(base.run.threads));
  const std::vector<machine::Link> full = machine.links;
  std::vector<Point> points;
  for (const int64_t tokens : arguments.tokens)
    for (const int64_t micro_batches : arguments.micro_batches) {
      job::Job job = base;
      // Whole sequences where they fit, one shorter one where not.
      job.batch.sequence = std::min(job.model.sequence, tokens);
      if (tokens % job.batch.sequence != 0)
        throw input_error("--tokens {}: not a multiple of the model's sequence, {}", tokens, job.batch.sequence);
      job.batch.micro = tokens / job.batch.sequence;
      job.batch.global = job.batch.micro * micro_batches * arguments.ranks;
      const auto build = [&](const job::Job& each) {
        return step::build({.job = each, .ranks = arguments.ranks, .rank = 0}, step::Goal::train, *planner);
      };
      const step::Program topo = build(by_level(job, "zero-topo")), three_by_level = build(by_level(job, "zero3"));
      // As published: waiting for all communication, or overlapping by one unit.
      const step::Program threes[] = {build(as_flat_rings(job, "zero3", 0)), build(as_flat_rings(job, "zero3", 1))};
      const step::Program pluses[] = {build(as_flat_rings(job, "zeropp", 0)), build(as_flat_rings(job, "zeropp", 1))};
      const auto price_at = [&](double share, double inner_share) {
        for (size_t level = 1; level < full.size(); ++level) {
          const double of_full = level + 1 == full.size() ? share : inner_share;
          machine.links[level].bandwidth = full[level].bandwidth * of_full;
          machine.links[level].bandwidth_alone = full[level].bandwidth_alone * of_full;
        }
        const auto price = [&](const step::Program& program) { return simulate::step_time(machine, program).seconds; };
        const double topo_seconds = price(topo), level_gain = price(three_by_level) / topo_seconds;
        const double three_seconds[] = {price(threes[0]), price(threes[1])};
        const double plus_seconds[] = {price(pluses[0]), price(pluses[1])};
        for (const bool three : {false, true})
          for (const bool plus : {false, true})
            points.push_back({share,
                              inner_share,
                              tokens,
                              micro_batches,
                              three,
                              plus,
                              {three_seconds[three], plus_seconds[plus], topo_seconds},
                              level_gain});
      };
      for (const double inner_share : arguments.inner_shares)
        for (const double share : arguments.shares) price_at(share, inner_share);
    }

  std::stable_sort(points.begin(), points.end(),
                   [](const Point& a, const Point& b) { return a.distance() < b.distance(); });
  const auto inside = static_cast<size_t>(
      std::count_if(points.begin(), points.end(), [&](const Point& p) { return p.distance() <= arguments.tolerance; }));
  if (arguments.json) {
    Json all = Json::array();
    for (const Point& p : points) {
      Json ratios = Json::array();
      for (const Gain& gain : gains) ratios.push_back(p.ratio(gain));
      all.push_back({{"bandwidth", full.back().bandwidth * p.share},
                     {"inner_share", p.inner_share},
                     {"tokens", p.tokens},
                     {"micro_batches", p.micro_batches},
                     {"zero3_overlaps", p.zero3_overlaps},
                     {"zeropp_overlaps", p.zeropp_overlaps},
                     {"step_s", {p.seconds[zero3], p.seconds[zeropp], p.seconds[zero_topo]}},
                     {"gains", ratios},
                     {"distance", p.distance()},
                     {"by_level_zero_topo_over_zero3", p.by_level}});
    }
    return print_json(
        {{"ranks", arguments.ranks}, {"tolerance", arguments.tolerance}, {"inside", inside}, {"points", all}});
  }
  print_line(fmt::format("{} ranks of {}: {} of {} points have all gains within {:g} % of what was published",
                         arguments.ranks, machine.name, inside, points.size(), 100 * arguments.tolerance));
  std::string header = fmt::format("{:>9} {:>6} {:>7} {:>3} {:>8} {:>8} {:>8} {:>8} {:>8}", "GB/s", "inner", "tokens",
                                   "A", "zero3", "zeropp", "zero3 s", "zeropp s", "topo s");
  for (const Gain& gain : gains) header += fmt::format(" {:>18}", fmt::format("{}/{}", gain.of, gain.over));
  print_line(header + fmt::format(" {:>6} {:>9}", "off", "by level"));
  for (size_t n = 0; n < std::max<size_t>(inside, 5) && n < points.size(); ++n) {
    const Point& p = points[n];
    std::string row = fmt::format("{:>9.2f} {:>6.2f} {:>7} {:>3} {:>8} {:>8} {:>8.3f} {:>8.3f} {:>8.3f}",
                                  full.back().bandwidth * p.share / 1e9, p.inner_share, p.tokens, p.micro_batches,
                                  p.zero3_overlaps ? "overlaps" : "waits", p.zeropp_overlaps ? "overlaps" : "waits",
                                  p.seconds[zero3], p.seconds[zeropp], p.seconds[zero_topo]);
    for (const Gain& gain : gains) row += fmt::format(" {:>18.3f}", p.ratio(gain));
    print_line(row + fmt::format(" {:>5.1f}% {:>9.3f}", 100 * p.distance(), p.by_level));
  }
}

}  // namespace

void add_bench_region(CLI::App& bench_verb) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = bench_verb.add_subcommand("region",
                                             "Priced, not run: where the published gains of ZeRO++ and of three levels "
                                             "hold together, over the bandwidth of the "
                                             "outermost links, tokens a rank, micro-batches and the baselines' "
                                             "overlap; \"by level\" is what is left of the last "
                                             "against zero3 with collectives by level");
  add_job(*verb, arguments->job);
  verb->add_option("--shares", arguments->shares, "Of the machine file's outermost bandwidth")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 1e3));
  verb->add_option("--inner-shares", arguments->inner_shares,
                   "Of the bandwidth of the levels between the innermost and it")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 1e3));
  verb->add_option("--tokens", arguments->tokens, "Of a micro-batch")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  verb->add_option("--micro-batches", arguments->micro_batches, "Micro-batches a step")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--tolerance", arguments->tolerance, "How far off each gain may be")->check(CLI::Range(0.0, 1.0));
  add_ranks(*verb, arguments->ranks);
  add_json(*verb, arguments->json);
  verb->callback([arguments] { bench(*arguments); });
}

}  // namespace strata::cli
