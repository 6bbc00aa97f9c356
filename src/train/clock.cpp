#include "train/clock.h"

#include <limits>
#include <span>

namespace strata::train {

namespace {

// Of each rank: enough for some to meet it awake, more while none was answered fast.
constexpr int least_questions = 8, most_questions = 100;
constexpr int64_t fast = 20'000;  // nanoseconds, there and back
constexpr char asks = 1, ends = 0;
constexpr const char* what = "comparing clocks";

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

int64_t steady_nanoseconds() { return steady_nanoseconds(std::chrono::steady_clock::now()); }

int64_t steady_nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::vector<ClockOffset> measure_clocks(comm::Control& control, const std::function<int64_t()>& now) {
  if (control.rank() != 0) {
    while (true) {
      char word = ends;
      control.receive(0, std::as_writable_bytes(std::span(&word, 1)), what);
      if (word == ends) return {};
      control.send(0, bytes_of(now()), what);
    }
  }
  std::vector<ClockOffset> offsets(static_cast<size_t>(control.ranks()));
  for (int64_t rank = 1; rank < control.ranks(); ++rank) {
    int64_t shortest = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < least_questions || (i < most_questions && shortest > fast); ++i) {
      int64_t theirs = 0;
      const int64_t asked = now();
      control.send(rank, bytes_of(asks), what);
      control.receive(rank, std::as_writable_bytes(std::span(&theirs, 1)), what);
      const int64_t trip = now() - asked;
      if (trip >= shortest) continue;
      shortest = trip;
      offsets[static_cast<size_t>(rank)] = {asked + trip / 2 - theirs, trip / 2 + 1};
    }
    control.send(rank, bytes_of(ends), what);
  }
  return offsets;
}

}  // namespace strata::train
