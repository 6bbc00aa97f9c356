#include "core/allocations.h"

#include <atomic>

namespace strata::allocations {

namespace {

std::atomic<bool> present{false}, active{false};
std::atomic<int64_t> ours{0}, libraries{0};
std::atomic<int> library_depth{0};

}  // namespace

bool watching() { return present.load(std::memory_order_relaxed); }

Watch::Watch() {
  ours = 0;
  libraries = 0;
  active = true;
}
Watch::~Watch() { active = false; }
Counts Watch::counts() const { return {ours.load(), libraries.load()}; }

LibraryCall::LibraryCall() { ++library_depth; }
LibraryCall::~LibraryCall() { --library_depth; }

void note() noexcept {
  if (!active.load(std::memory_order_relaxed)) return;
  (library_depth.load(std::memory_order_relaxed) > 0 ? libraries : ours).fetch_add(1, std::memory_order_relaxed);
}

void hook_present() noexcept { present = true; }

}  // namespace strata::allocations
