#pragma once
// Errors that reach a person. One exception type; what kind of fault it is decides the exit code.
//
//   throw input_error("{}: {} is not a number", file, key);
//
// Messages name the file, key or tensor, the rank where it matters, and what to do.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace strata {

/// What went wrong, as the exit code tells it.
enum class Fault : int {
  input = 2,        ///< bad config, file or command line
  run = 3,          ///< the run failed: a check missed, a device or the disk gave up
  interrupted = 4,  ///< stopped on request after a clean save
};

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }
  int exit_code() const { return static_cast<int>(fault_); }
  /// Whether every rank of the run throws an error for the same reason: then one of them need say it, and all can end in
  /// good order.
  bool on_all_ranks() const { return on_all_ranks_; }
  void set_on_all_ranks() { on_all_ranks_ = true; }

 private:
  Fault fault_;
  bool on_all_ranks_ = false;
};

template <typename... Args>
Error input_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Fault::input, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Error run_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Fault::run, fmt::format(format, std::forward<Args>(args)...));
}

/// The same error, known to be thrown on all ranks.
inline Error everywhere(Error error) {
  error.set_on_all_ranks();
  return error;
}

/// A mistake of the program itself, never of its input.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] inline void internal_failure(const char* condition, const char* file, int line,
                                          const std::string& detail) {
  throw InternalError(fmt::format("internal error: {} does not hold at {}:{}{}{}", condition, file, line,
                                  detail.empty() ? "" : ": ", detail));
}

}  // namespace strata

/// Invariant of the program; the optional rest is a fmt format with arguments.
#define STRATA_CHECK(condition, ...)                                                             \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::strata::internal_failure(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
