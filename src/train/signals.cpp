#include "train/signals.h"

#include <csignal>

#include <array>
#include <mutex>

namespace strata::train {

namespace {

volatile std::sig_atomic_t stop_signal = 0;
constexpr std::array handled = {SIGINT, SIGTERM, SIGUSR1};
std::array<struct sigaction, handled.size()> before;
std::mutex mutex;
int requests = 0;  // ranks that are threads of one process share the signals

void on_signal(int signal) {
  if (stop_signal != 0 && signal == SIGINT) {  // asked twice: do not wait for the step
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  stop_signal = signal;
}

}  // namespace

StopRequest::StopRequest() {
  const std::lock_guard lock(mutex);
  if (requests++ > 0) return;
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &action, &before[i]);
}

StopRequest::~StopRequest() {
  const std::lock_guard lock(mutex);
  if (--requests > 0) return;
  for (size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &before[i], nullptr);
}

bool StopRequest::received() const { return stop_signal != 0; }

}  // namespace strata::train
