#include "device/threads.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace strata::device {
namespace {

TEST(Threads, CountsTheCoresOfItsMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&mask));
  // In a child that may use one processor only, there is one core.
  const pid_t child = fork();
  if (child == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof(one), &one) != 0) _exit(2);
        break;
      }
    _exit(usable_cores() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Threads, YieldWhenCrowdedSpinBrieflyWhenNotAndDoAsAsked) {
  unsetenv("OMP_WAIT_POLICY");
  unsetenv("GOMP_SPINCOUNT");
  using Environment = std::vector<std::pair<std::string, std::string>>;
  const Environment yields = {{"OMP_WAIT_POLICY", "PASSIVE"}, {"GOMP_SPINCOUNT", "0"}};
  EXPECT_EQ(wanted_environment(2, 1, 2), (Environment{{"GOMP_SPINCOUNT", "20000"}}));
  EXPECT_TRUE(wanted_environment(1, 2, 2).empty());
  EXPECT_EQ(wanted_environment(2, 2, 2), yields);
  EXPECT_EQ(wanted_environment(1, 3, 2), yields);
  setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_TRUE(wanted_environment(2, 2, 2).empty());
  unsetenv("OMP_WAIT_POLICY");
  setenv("GOMP_SPINCOUNT", "100", 1);
  EXPECT_TRUE(wanted_environment(2, 2, 2).empty());
  unsetenv("GOMP_SPINCOUNT");
}

/// Runs this program again with one test, in a child, after prepare_threads(threads, ranks).
int status_of_child(int threads, int ranks, const char* test) {
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    unsetenv("STRATA_STARTED_AGAIN");
    const std::string filter = std::string("--gtest_filter=") + test;
    std::string program = "strata_device_test", all = "--gtest_also_run_disabled_tests", text = filter;
    char* arguments[] = {program.data(), all.data(), text.data(), nullptr};
    prepare_threads(threads, ranks, arguments);
    _exit(42);  // it was not started again
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Threads, CrowdedProgramsStartAgainOnce) {
  EXPECT_EQ(status_of_child(1000, 1000, "Threads.DISABLED_AfterStartingAgain"), 0);
}

TEST(Threads, OthersDoNot) { EXPECT_EQ(status_of_child(1, 1, "Threads.DISABLED_AfterStartingAgain"), 42); }

TEST(Threads, DISABLED_AfterStartingAgain) {
  ASSERT_NE(std::getenv("OMP_WAIT_POLICY"), nullptr);
  EXPECT_STREQ(std::getenv("OMP_WAIT_POLICY"), "PASSIVE");
  EXPECT_STREQ(std::getenv("GOMP_SPINCOUNT"), "0");
  // Were the variables lost, the guard would still stop it.
  unsetenv("OMP_WAIT_POLICY");
  unsetenv("GOMP_SPINCOUNT");
  char* arguments[] = {nullptr};
  prepare_threads(3, 1000, arguments);
  EXPECT_EQ(omp_get_max_threads(), 3);
}

}  // namespace
}  // namespace strata::device
