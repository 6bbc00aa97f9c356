#pragma once
// Counts heap allocations while a step runs, so that "no allocation inside a step" is a measured fact. The counting malloc
// (allocations_hook.cpp) is linked into the program and its tests; without it the counts stay zero and `watching` says so.

#include <cstdint>

namespace strata::allocations {

struct Counts {
  int64_t ours = 0;       ///< made by Strata's code
  int64_t libraries = 0;  ///< made inside a call into a library, see LibraryCall
};

/// True if the counting malloc is linked in.
bool watching();

/// Counts from construction on, on all threads.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  Counts counts() const;

 private:
  Counts before_;
};

/// Marks that a library has been called: until it returns, allocations on any thread (the library's own team works too) are
/// the library's.
class LibraryCall {
 public:
  LibraryCall();
  ~LibraryCall();
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;
};

/// Called by the counting malloc.
void note() noexcept;
void hook_present() noexcept;

}  // namespace strata::allocations
