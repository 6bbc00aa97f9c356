#include "core/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>

namespace strata {
namespace {

TEST(Process, StatusLinesAreReadAsKilobytes) {
  const std::string_view status = "Name:\tVmRSS\nVmHWM:\t   2048 kB\nVmRSS:\t 7 kB\nThreads:\t3\n";
  EXPECT_EQ(status_bytes(status, "VmHWM"), 2048 * 1024);
  EXPECT_EQ(status_bytes(status, "VmRSS"), 7 * 1024);
}

TEST(Process, StatusLinesThatAreMissingOrOddAreUnknown) {
  EXPECT_EQ(status_bytes("", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmHWM:\t5 kB\n", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSSx:\t5 kB\n", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSS", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSS:", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSS:\t   ", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSS:\tmany kB\n", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSS:\t5 MB\n", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSS:\t-5 kB\n", "VmRSS"), -1);
  EXPECT_EQ(status_bytes("VmRSS:\t5 kB", "VmRSS"), 5 * 1024);
}

TEST(Process, TouchedMemoryIsResidentAndItsPeakStays) {
  constexpr int64_t size = 24 << 20, slack = 8 << 20;
  const int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  EXPECT_GE(peak_resident_bytes(), before - slack);
  {
    std::unique_ptr<std::byte[]> memory(new std::byte[static_cast<size_t>(size)]);
    for (int64_t i = 0; i < size; i += 4096) static_cast<volatile std::byte*>(memory.get())[i] = std::byte{1};
    EXPECT_GE(resident_bytes(), before + size - slack);
  }
  EXPECT_GE(peak_resident_bytes(), before + size - slack);
}

}  // namespace
}  // namespace strata
