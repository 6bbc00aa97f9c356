#pragma once
// Waiting without an event: cores may be shared by several ranks, so a wait gives its core away soon and sleeps later.

#include <algorithm>
#include <chrono>
#include <thread>

namespace strata::comm {

class Idle {
 public:
  void reset() { waits_ = false; }
  void pause() {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (!waits_) since_ = now;
    waits_ = true;
    // By time, not by turns: among many ranks on few cores a turn takes milliseconds. Later a part of the wait so far, so that what
    // comes is found late by no more than that.
    const auto waited = now - since_;
    if (waited < 200us)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(200us, waited / 32));
  }

 private:
  bool waits_ = false;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace strata::comm
