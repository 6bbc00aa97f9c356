// Stands in for cpu/ and poison/ where neither is built.

#include <algorithm>
#include <thread>

#include "core/error.h"
#include "device/device.h"
#include "device/stream.h"
#include "device/threads.h"

namespace strata::device {

std::unique_ptr<Device> make_cpu(int) {
  throw run_error("this build plans only and has no device; build without STRATA_PLAN_ONLY to run a model");
}

std::unique_ptr<Device> make_poison(int threads) { return make_cpu(threads); }

std::unique_ptr<Kernel> make_stream(int threads, std::vector<Stream>) {
  make_cpu(threads);
  return nullptr;
}

std::unique_ptr<Planner> make_planner(int threads) { return make_formula_planner(threads); }

int usable_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::vector<std::pair<std::string, std::string>> wanted_environment(int, int, int) { return {}; }

void prepare_threads(int, int, char**) {}

}  // namespace strata::device
