#pragma once
// Running a program in a test: what it wrote and how it ended. No shell in between, so arguments need no quoting.

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace strata::cli {

struct Outcome {
  int code = -1;    ///< exit code; 128 + signal if a signal ended it
  std::string out;  ///< standard output
  std::string err;  ///< standard error
};

struct RunOptions {
  std::string folder = {};                                            ///< working directory; "" = this one's
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< set over this process's own
  std::string out_to = {};                                            ///< standard output goes to this file instead
};

/// Runs a program (found through PATH if it has no slash), waits for its end, and returns what it wrote.
inline Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                           const RunOptions& options = {}) {
  int pipes[2][2];
  for (auto& each : pipes)
    if (::pipe2(each, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  // Everything is made before the fork: the child only calls what is safe there.
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
    ::dup2(options.out_to.empty() ? pipes[0][1] : ::open(options.out_to.c_str(), O_WRONLY), STDOUT_FILENO);
    ::dup2(pipes[1][1], STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  for (auto& each : pipes) ::close(each[1]);

  Outcome outcome;
  std::string* const texts[2] = {&outcome.out, &outcome.err};
  int open = 2;
  while (open > 0) {
    pollfd waiting[2] = {{pipes[0][0], POLLIN, 0}, {pipes[1][0], POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) break;
    for (int i = 0; i < 2; ++i) {
      if (waiting[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const ssize_t count = ::read(pipes[i][0], buffer.data(), buffer.size());
      if (count > 0) {
        texts[i]->append(buffer.data(), static_cast<size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        ::close(pipes[i][0]);
        pipes[i][0] = -1;  // poll passes over it
        --open;
      }
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

#ifdef STRATA_PROGRAM
/// Runs the program `strata` of this build.
inline Outcome strata(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  return run_program(STRATA_PROGRAM, arguments, options);
}
#endif

}  // namespace strata::cli
