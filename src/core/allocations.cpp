#include "core/allocations.h"

#include <atomic>

namespace strata::allocations {

namespace {

std::atomic<bool> present{false};
std::atomic<int> watches{0};
std::atomic<int64_t> ours{0}, libraries{0};
std::atomic<int> library_depth{0};

}  // namespace

bool watching() { return present.load(std::memory_order_relaxed); }

Watch::Watch() : before_{ours.load(), libraries.load()} { ++watches; }
Watch::~Watch() { --watches; }
Counts Watch::counts() const { return {ours.load() - before_.ours, libraries.load() - before_.libraries}; }

LibraryCall::LibraryCall() { ++library_depth; }
LibraryCall::~LibraryCall() { --library_depth; }

void note() noexcept {
  if (watches.load(std::memory_order_relaxed) == 0) return;
  (library_depth.load(std::memory_order_relaxed) > 0 ? libraries : ours).fetch_add(1, std::memory_order_relaxed);
}

void hook_present() noexcept { present = true; }

}  // namespace strata::allocations
