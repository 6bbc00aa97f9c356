#include "job/batch.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace strata::job {

namespace {

std::string opened(const std::string& where) { return where.empty() ? "" : where + ": "; }

/// The divisors of `number` next to `near` on both sides, nearest first; only those within reach of a short search.
std::vector<int64_t> near_divisors(int64_t number, int64_t near) {
  constexpr int64_t reach = 100000;
  std::vector<int64_t> found;
  for (int64_t candidate = std::min(near, number); candidate >= 1 && candidate > near - reach; --candidate)
    if (number % candidate == 0) {
      found.push_back(candidate);
      break;
    }
  for (int64_t candidate = near + 1; candidate <= number && candidate < near + reach; ++candidate)
    if (number % candidate == 0) {
      found.push_back(candidate);
      break;
    }
  std::stable_sort(found.begin(), found.end(),
                   [&](int64_t a, int64_t b) { return std::abs(a - near) < std::abs(b - near); });
  return found;
}

std::string either(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t value : values) text += fmt::format("{}{}", text.empty() ? "" : " or ", value);
  return text;
}

}  // namespace

BatchPlan resolve_batch(const Job& job, int64_t ranks, const std::string& where) {
  const int64_t tensor = job.mesh.tensor, pipeline = job.mesh.pipeline;
  const int64_t global = job.batch.global, micro = job.batch.micro;
  STRATA_CHECK(tensor > 0 && pipeline > 0 && global > 0 && micro > 0);
  if (ranks < 1) throw input_error("{}{} ranks: at least one is needed", opened(where), ranks);

  const int64_t model_parallel = tensor * pipeline;
  if (ranks % model_parallel != 0) {
    const int64_t below = ranks / model_parallel * model_parallel;
    std::string fixes =
        fmt::format("{}{} ranks", below > 0 ? fmt::format("{} or ", below) : "", below + model_parallel);
    // Another degree in place of one of the two, the other kept.
    for (const auto& [name, degree, other] :
         {std::tuple("mesh.tensor", tensor, pipeline), std::tuple("mesh.pipeline", pipeline, tensor)})
      if (ranks % other == 0 && degree > 1)
        fixes += fmt::format(", or {} = {}", name, either(near_divisors(ranks / other, degree)));
    throw input_error(
        "{}data-parallel ranks = {} ranks / {} tensor / {} pipeline = {:.6g}, which is not whole; nearest that work: "
        "{}",
        opened(where), ranks, tensor, pipeline, static_cast<double>(ranks) / static_cast<double>(model_parallel),
        fixes);
  }

  const int64_t data_parallel = ranks / model_parallel;
  const bool fits = data_parallel <= global / micro;
  if (!fits || global % (micro * data_parallel) != 0) {
    std::vector<std::string> fixes;
    if (data_parallel <= INT64_MAX / micro / 2) {
      const int64_t pass = micro * data_parallel, below = global / pass;
      fixes.push_back(fmt::format("batch.global = {}{} (accumulation {})",
                                  below > 0 ? fmt::format("{} (accumulation {}) or ", below * pass, below) : "",
                                  (below + 1) * pass, below + 1));
    }
    if (global % data_parallel == 0)
      fixes.push_back(fmt::format("batch.micro = {}", either(near_divisors(global / data_parallel, micro))));
    if (global % micro == 0) {
      std::vector<int64_t> counts = near_divisors(global / micro, data_parallel);
      for (int64_t& count : counts) count *= model_parallel;
      if (!counts.empty()) fixes.push_back(fmt::format("{} ranks", either(counts)));
    }
    std::string list;
    for (const std::string& fix : fixes) list += (list.empty() ? "" : "; or ") + fix;
    throw input_error(
        "{}batch.global {} = batch.micro {} x accumulation x {} data-parallel ranks ({} ranks / {} tensor / {} "
        "pipeline) "
        "gives accumulation = {:.6g}, which is not {}; nearest that work: {}",
        opened(where), global, micro, data_parallel, ranks, tensor, pipeline,
        static_cast<double>(global) / static_cast<double>(micro) / static_cast<double>(data_parallel),
        fits ? "whole" : "at least 1", list);
  }
  return {.global = global,
          .micro = micro,
          .accumulation = global / (micro * data_parallel),
          .data_parallel = data_parallel,
          .ranks = ranks,
          .tensor = tensor,
          .pipeline = pipeline};
}

std::string describe(const BatchPlan& plan) {
  return fmt::format(
      "{} sequences = {} micro x {} accumulation x {} data-parallel ranks ({} ranks / {} tensor / {} pipeline)",
      plan.global, plan.micro, plan.accumulation, plan.data_parallel, plan.ranks, plan.tensor, plan.pipeline);
}

}  // namespace strata::job
