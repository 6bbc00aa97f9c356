// A counting malloc in front of glibc's. Linked as an object into programs that want counts; never with sanitizers, which
// bring a malloc of their own.

#include <cerrno>
#include <cstddef>

#include "core/allocations.h"

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  strata::allocations::note();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  strata::allocations::note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  strata::allocations::note();
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  strata::allocations::note();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  strata::allocations::note();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  strata::allocations::note();
  void* memory = __libc_memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"

namespace {
[[maybe_unused]] const bool registered = (strata::allocations::hook_present(), true);
}
