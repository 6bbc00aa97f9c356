#pragma once
// Waiting without an event: cores may be shared by several ranks, so a wait gives its core away soon and sleeps later.

#include <algorithm>
#include <chrono>
#include <thread>

namespace strata::comm {

class Idle {
 public:
  void reset() { pauses_ = 0; }
  void pause() {
    ++pauses_;
    if (pauses_ < 64)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(200, 10 + (pauses_ - 64))));
  }

 private:
  int pauses_ = 0;
};

}  // namespace strata::comm
