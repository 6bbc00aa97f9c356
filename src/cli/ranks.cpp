#include "cli/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "cli/verb.h"
#include "core/error.h"
#include "mpi/world.h"

namespace strata::cli {

namespace {

/// Others that wait in vain, too, get the time to say for whom.
constexpr auto grace = std::chrono::seconds(3);

[[noreturn]] void end_all(mpi::World& world, const char* message, int code, bool json) {
  report_error(message, code, json && world.transport().rank() == 0);
  std::fflush(nullptr);
  std::this_thread::sleep_for(grace);
  world.abort(code);
}

}  // namespace

void with_ranks(bool thread_a_level, double timeout, bool json, const std::function<void(const Team&)>& work) {
  if (!mpi::launched()) return work({});
  mpi::World world(thread_a_level);
  comm::Transport& transport = world.transport();
  Team team{transport.ranks() > 1 ? &transport : nullptr, transport.rank(), transport.ranks(), &world, {}};
  try {
    if (team.ranks > 1) {
      comm::Control control(transport, timeout);
      const auto packages = control.gather(machine::package_of_process(), "finding out which ranks share a package");
      try {
        team.detected = machine::detected(world.nodes(), packages);
      } catch (const Error&) {
        team.detected.clear();  // matters only to a job that gives no levels
      }
    }
    work(team);
  } catch (const Error& error) {
    if (team.ranks > 1 && !error.on_all_ranks()) end_all(world, error.what(), error.exit_code(), json);
    // Told before MPI ends: the launcher may end everything once the first process is gone.
    throw Exit{team.rank == 0 ? report_error(error.what(), error.exit_code(), json) : error.exit_code()};
  } catch (const std::exception& error) {
    if (team.ranks > 1) end_all(world, error.what(), static_cast<int>(Fault::run), json);
    throw;
  }
}

}  // namespace strata::cli
