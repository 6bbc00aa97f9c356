// GoogleTest on every rank of an MPI run. Each rank runs the same tests; one that fails on any rank fails on all, so that no
// rank goes on alone. Rank 0 prints; others print only what failed.

#include <gtest/gtest.h>

#include <memory>

#include "mpi_world.h"

namespace strata::mpi {

World* world = nullptr;

namespace {

class OnlyFailures : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", static_cast<int>(world->transport().rank()),
                   result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
  }
};

}  // namespace

}  // namespace strata::mpi

int main(int argc, char** argv) {
  using namespace strata::mpi;
  testing::InitGoogleTest(&argc, argv);
  if (!launched()) {  // asked for its list of tests, or started by hand
    if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
    std::fprintf(stderr, "start with mpirun -n 4\n");
    return 2;
  }
  World mine(false);
  world = &mine;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (mine.transport().rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new OnlyFailures);
  } else {
    std::printf("%s, %d ranks\n", library().c_str(), static_cast<int>(mine.transport().ranks()));
  }
  const int failed = RUN_ALL_TESTS();
  strata::comm::Control control(mine.transport(), 60);
  int worst = 0;
  for (int each : control.gather(failed, "the end of the tests")) worst = std::max(worst, each);
  return worst;
}
