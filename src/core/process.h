#pragma once
// What the operating system says about this process. Reading it allocates nothing.

#include <cstdint>
#include <string_view>

namespace strata {

/// Bytes of this process in physical memory now: VmRSS of /proc/self/status, shared and mapped file pages included.
/// -1 where /proc does not say. The kernel batches its counts: the value may lag by some hundred kB a thread.
int64_t resident_bytes();

/// The most that resident_bytes has been since the process began: VmHWM, or getrusage's ru_maxrss where /proc has no
/// such line (which on Linux may count what the process was before exec). -1 if neither is known.
int64_t peak_resident_bytes();

/// The bytes that a line "KEY:   123 kB" of a status file stands for; -1 if there is no such line.
int64_t status_bytes(std::string_view status, std::string_view key);

}  // namespace strata
