// The three families against Hugging Face's own numbers, on the CPU and behind poisoned memory.

#include "train/verify.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "job/placement.h"
#include "small_data.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;

fs::path vectors() {
  const char* shared = std::getenv("STRATA_SHARED");
  return fs::path(shared ? shared : STRATA_SOURCE_DIR "/../shared") / "vectors";
}

class Vectors : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = vectors() / GetParam();
    if (!fs::exists(folder_ / "reference.safetensors"))
      GTEST_SKIP() << "REFERENCE VECTORS NOT FOUND: set STRATA_SHARED to the folder that holds vectors/" << GetParam();
  }
  fs::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Families, Vectors, testing::Values("gpt2-tiny", "neox-tiny", "llama-tiny"),
                         [](const auto& i) { return std::string(i.param).substr(0, std::string(i.param).find('-')); });

void expect_passed(const VerifyReport& report) {
  EXPECT_GT(report.rows.size(), 30u);
  for (const VerifyRow& row : report.rows) EXPECT_LE(row.deviation, row.bound) << row.what;
}

TEST_P(Vectors, AgreeOnOneThreadAndTwo) {
  for (int threads : {1, 2})
    expect_passed(verify_model(folder_, {.compute = DType::f32, .threads = threads, .make_device = device::make_cpu}));
}

TEST_P(Vectors, AgreeOnManyRanksUnderEveryPreset) {
  for (int64_t ranks : {2, 3, 4, 8, 16})
    for (const std::string& preset : job::placement_presets()) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << preset);
      expect_passed(verify_model(folder_, {.ranks = ranks, .placement = preset}));
    }
}

TEST_P(Vectors, AgreeInPipelinesOfEverySchedule) {
  using job::Pipeline;
  for (const Pipeline schedule :
       {Pipeline::gpipe, Pipeline::one_f_one_b, Pipeline::interleaved, Pipeline::zb_h1, Pipeline::zb_v})
    for (const auto& [ranks, stages] : {std::pair{2, 2}, std::pair{4, 2}, std::pair{6, 3}, std::pair{16, 4}})
      for (const char* preset : {"ddp", "zero3", "zero-topo"}) {
        // Three layers, embedding and head: five units.
        const bool two = schedule == Pipeline::interleaved || schedule == Pipeline::zb_v;
        if (stages * (two ? 2 : 1) > 5) continue;
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << stages << " stages, " << job::name_of(schedule)
                                        << ", " << preset);
        expect_passed(
            verify_model(folder_, {.ranks = ranks, .placement = preset, .pipeline = stages, .schedule = schedule}));
      }
}

TEST_P(Vectors, AgreeBehindPoisonedMemory) {
  expect_passed(verify_model(folder_, {.compute = DType::f32, .threads = 1, .make_device = device::make_poison}));
}

TEST_P(Vectors, AgreeInSixteenBits) {
  for (DType compute : {DType::bf16, DType::f16}) {
    expect_passed(verify_model(folder_, {.compute = compute, .threads = 2, .make_device = device::make_cpu}));
    expect_passed(verify_model(folder_, {.compute = compute, .threads = 1, .make_device = device::make_poison}));
  }
}

TEST_P(Vectors, AWrongWeightIsNoticed) {
  test::Scratch copy;
  for (const char* name : {"config.json", "model.safetensors", "reference.safetensors"})
    fs::copy_file(folder_ / name, copy.path() / name);
  {
    std::fstream file(copy.path() / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-8, std::ios::end);  // the last weight but one
    const float wrong = 0.5f;
    file.write(reinterpret_cast<const char*>(&wrong), sizeof(wrong));
  }
  for (DType compute : {DType::f32, DType::bf16, DType::f16})
    EXPECT_FALSE(
        verify_model(copy.path(), {.compute = compute, .threads = 1, .make_device = device::make_cpu}).passed());
}

TEST_P(Vectors, AFolderThatLacksSomethingIsNamed) {
  test::Scratch copy;
  for (const char* name : {"config.json", "model.safetensors"}) fs::copy_file(folder_ / name, copy.path() / name);
  try {
    verify_model(copy.path(), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_NE(std::string(error.what()).find("reference.safetensors"), std::string::npos);
  }
}

}  // namespace
}  // namespace strata::train
