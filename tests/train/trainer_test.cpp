#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>

#include "checkpoint/hf.h"
#include "core/allocations.h"
#include "core/error.h"
#include "small_data.h"
#include "step/small_job.h"

namespace strata::train {
namespace {

class Recorder : public Observer {
 public:
  void on_start(const RunStart& start) override { planned = start.planned_bytes; }
  void on_step(const StepReport& report) override {
    steps.push_back(report);
    if (static_cast<int64_t>(steps.size()) == signal_after) std::raise(SIGUSR1);
  }
  void on_validation(const ValidationReport& report) override { validations.push_back(report); }
  void on_saved(int64_t, const std::filesystem::path& folder) override { saved.push_back(folder); }
  int64_t planned = 0, signal_after = -1;
  std::vector<StepReport> steps;
  std::vector<ValidationReport> validations;
  std::vector<std::filesystem::path> saved;
};

class Training : public testing::Test {
 protected:
  void SetUp() override {
    write_dataset(folder_.path() / "train", 20000, 211);
    write_dataset(folder_.path() / "validation", 2000, 211, 2);
  }
  job::Job job(model::Family family = model::Family::gpt2) const {
    job::Job job = step::small_job(family);
    job.data.train = {{(folder_.path() / "train").string(), 1}};
    job.data.validation = (folder_.path() / "validation").string();
    job.optimizer.lr = 3e-3;
    job.run.steps = 12;
    job.run.folder = (folder_.path() / "run").string();
    return job;
  }
  Recorder run(const job::Job& job, bool replace = true, int threads = 1) {
    Recorder recorder;
    Observer* observers[] = {&recorder};
    const auto device = device::make_cpu(threads);
    train(job, *device, observers, replace);
    return recorder;
  }
  static std::vector<double> losses(const Recorder& recorder) {
    std::vector<double> result;
    for (const StepReport& step : recorder.steps) result.push_back(step.loss);
    return result;
  }
  std::string weights(const std::filesystem::path& saved) {
    std::ifstream file(saved / "model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  test::Scratch folder_;
};

TEST_F(Training, LearnsAndTwoRunsGiveTheSameBits) {
  for (auto family : {model::Family::gpt2, model::Family::gpt_neox, model::Family::llama}) {
    job::Job j = job(family);
    j.run.steps = 60;
    const Recorder first = run(j);
    const std::string weights_first = weights(first.saved.back());
    const Recorder second = run(j);
    EXPECT_EQ(losses(first), losses(second));
    EXPECT_EQ(weights_first, weights(second.saved.back()));
    EXPECT_LT(first.steps.back().loss, first.steps.front().loss - 1);
  }
}

TEST_F(Training, PlannedPeakIsTheAllocatedPeakAndAStepAllocatesNothing) {
  for (auto recompute : {job::Recompute::none, job::Recompute::selective, job::Recompute::full})
    for (int64_t validate : {0, 4}) {
      job::Job j = job();
      j.schedule.recompute = recompute;
      j.run.validate = {.every = validate, .batches = 2};
      const Recorder recorder = run(j);
      for (const StepReport& step : recorder.steps) {
        EXPECT_EQ(step.allocated_bytes, recorder.planned);
        if (!allocations::watching()) continue;  // under a sanitizer
        if (step.step > 1) {                     // a library's own first-use allocations apart
          EXPECT_EQ(step.allocations, 0);
        }
      }
    }
}

TEST_F(Training, ASplitTrainsOnOneShareAndValidatesOnAnother) {
  // 90 documents that are learnt and 10 of another kind behind them.
  data::MegatronWriter writer(folder_.path() / "mixed", DType::u16);
  for (int d = 0; d < 100; ++d) {
    std::vector<int32_t> ids(200);
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = d < 90 ? static_cast<int32_t>(i % 3) : static_cast<int32_t>(100 + i % 7);
    writer.add(ids);
    writer.end_document();
  }
  writer.commit();
  job::Job j = job();
  j.data.train = {{(folder_.path() / "mixed").string(), 1}};
  j.data.validation.clear();
  j.data.split = {9, 1};
  j.run.validate = {.every = 12, .batches = 1};
  const Recorder recorder = run(j);
  ASSERT_EQ(recorder.validations.size(), 1u);
  EXPECT_LT(recorder.steps.back().loss, recorder.steps.front().loss - 1);
  EXPECT_GT(recorder.validations.back().loss, recorder.steps.back().loss + 1);
}

TEST_F(Training, RecomputeDropoutAndValidationChangeNoBit) {
  job::Job j = job();
  j.model.dropout = 0.1;
  const std::vector<double> expected = losses(run(j));
  for (auto recompute : {job::Recompute::selective, job::Recompute::full}) {
    j.schedule.recompute = recompute;
    EXPECT_EQ(losses(run(j)), expected);
  }
  j.run.validate = {.every = 3, .batches = 2};
  const Recorder validated = run(j);
  EXPECT_EQ(losses(validated), expected);
  EXPECT_EQ(validated.validations.size(), 4u);
  j.model.dropout = 0;
  EXPECT_NE(losses(run(j)), expected);
}

TEST_F(Training, MicroBatchesChangeNothingButRounding) {
  job::Job j = job();
  const std::vector<double> expected = losses(run(j));
  for (int64_t micro : {1, 2, 8}) {
    j.batch.micro = micro;
    const std::vector<double> found = losses(run(j));
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-5 * expected[i]);
  }
}

TEST_F(Training, EveryPrecisionLearnsTheSameAndPlansItsMemoryExactly) {
  job::Job j = job();
  j.run.steps = 120;
  const double expected = run(j).steps.back().loss;
  for (DType compute : {DType::f32, DType::bf16, DType::f16})
    for (const char* name : {"adamw", "adamw8bit"}) {
      if (compute == DType::f32 && std::string(name) == "adamw") continue;
      SCOPED_TRACE(testing::Message() << strata::name_of(compute) << " " << name);
      j.precision.compute = compute;
      j.optimizer.name = name;
      j.schedule.recompute = job::Recompute::none;
      j.run.validate = {.every = 30, .batches = 1};
      const Recorder first = run(j);
      EXPECT_NEAR(first.steps.back().loss, expected, 0.05 * expected);
      for (const StepReport& step : first.steps) {
        EXPECT_EQ(step.allocated_bytes, first.planned);
        if (allocations::watching() && step.step > 1) {
          EXPECT_EQ(step.allocations, 0);
        }
      }
      // What is made again in backward has the very bits of the first time.
      j.run.validate = {};
      j.schedule.recompute = job::Recompute::full;
      EXPECT_EQ(losses(run(j)), losses(first));
    }
}

TEST_F(Training, Fp16SkipsStepsUntilItsLossScaleFits) {
  job::Job j = job();
  j.precision.compute = DType::f16;
  j.precision.scaling = {.initial_power = 30, .hysteresis = 1};
  j.optimizer.schedule = {.shape = optim::Shape::linear, .warmup = 5};
  j.run.steps = 40;
  const Recorder recorder = run(j);
  int skipped = 0;
  for (const StepReport& step : recorder.steps) {
    EXPECT_EQ(step.loss_scale, std::exp2(30 - skipped));
    skipped += step.skipped;
    // The rate counts updates.
    EXPECT_NEAR(
        step.learning_rate,
        optim::learning_rate(j.optimizer.schedule, j.optimizer.lr, step.step - 1 - skipped + step.skipped, j.run.steps),
        1e-7);
  }
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 25);
  EXPECT_LT(recorder.steps.back().loss, recorder.steps.front().loss - 0.5);

  // A run in which nothing was ever updated is no success.
  j.precision.scaling = {.initial_power = 100};
  j.run.steps = 5;
  const auto saved_nothing = [&](const std::string& part) {
    Recorder last;
    Observer* observers[] = {&last};
    try {
      train(j, *device::make_cpu(1), observers, true);
      ADD_FAILURE() << "trained: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 3);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_TRUE(last.saved.empty());
  };
  saved_nothing("initial_power");
  j.precision.scaling = {.fixed = 0x1p30};
  saved_nothing("precision.loss_scaling.fixed");
}

TEST_F(Training, AttentionInsideDocumentsIsTheSameWhereThereIsOne) {
  job::Job j = job();
  const std::vector<double> across = losses(run(j));
  j.data.attention_across_documents = false;
  EXPECT_EQ(losses(run(j)), across);  // the data is one document
}

TEST_F(Training, SavesKeepsTheNewestAndStopsOnASignal) {
  job::Job j = job();
  j.run.save = {.every = 2, .keep = 2, .folder = "checkpoints"};
  Recorder recorder = run(j);
  EXPECT_EQ(recorder.saved.size(), 6u);
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "run" / "checkpoints")) {
    ++left;
    EXPECT_NO_THROW(checkpoint::HfFolder(entry.path()));
  }
  EXPECT_EQ(left, 2);

  Recorder stopped;
  stopped.signal_after = 5;
  Observer* observers[] = {&stopped};
  const auto device = device::make_cpu(1);
  const RunEnd end = train(j, *device, observers, true);
  EXPECT_TRUE(end.interrupted);
  EXPECT_EQ(end.step, 5);
  EXPECT_EQ(end.saved.filename(), "step-000005");
  EXPECT_TRUE(std::filesystem::exists(end.saved / "model.safetensors"));
}

TEST_F(Training, GoesOnFromASavedModel) {
  const Recorder first = run(job());
  job::Job j = job();
  j.model_from = first.saved.back().string();
  j.run.folder = (folder_.path() / "second").string();
  const Recorder second = run(j);
  EXPECT_LT(second.steps.front().loss, first.steps.front().loss - 0.3);
}

TEST_F(Training, ALossThatIsNotFiniteEndsTheRunAndSavesNothing) {
  job::Job j = job();
  j.optimizer.lr = 1e30;
  j.optimizer.clip = 0;
  j.run.save.every = 1;
  Recorder recorder;
  Observer* observers[] = {&recorder};
  const auto device = device::make_cpu(1);
  try {
    train(j, *device, observers, true);
    FAIL() << "trained at a rate of 1e30";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 3);
    EXPECT_NE(std::string(error.what()).find("not finite"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("optimizer.lr"), std::string::npos);
  }
  EXPECT_EQ(recorder.saved.size(), recorder.steps.size() - 1);
}

TEST_F(Training, RefusesBadInputByName) {
  const auto refused = [&](job::Job j, const std::string& part, int code = 2, bool replace = true) {
    try {
      run(j, replace);
      ADD_FAILURE() << "accepted: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  job::Job j = job();
  j.data.train.clear();
  refused(j, "data.train");
  j = job();
  j.data.train = {{(folder_.path() / "absent").string(), 1}};
  refused(j, "absent");
  j = job();
  j.model.vocab = 100;  // the data's ids go to 210
  refused(j, "vocabulary");
  j = job();
  j.mesh.tensor = 2;
  refused(j, "mesh.tensor");
  j = job();
  j.batch.global = 7;
  refused(j, "7");
  j = job();
  j.data.validation.clear();
  j.run.validate.every = 1;
  refused(j, "data.validation");
  j = job();
  j.model.attention_dropout = 0.1;
  refused(j, "model.attention_dropout");
  j = job();
  j.data.validation.clear();
  j.data.split = {0.9, 0.1};  // the dataset is one document, which cannot be shared out
  j.run.validate.every = 1;
  refused(j, "data.split");
  j.data.split = {1, 0};
  refused(j, "data.split");
  j = job();
  j.data.tokenizer = (folder_.path() / "none.model").string();
  refused(j, "data.tokenizer");
  j = job();
  j.data.tokenizer = "bytes";  // 257 ids for a vocabulary of 211
  refused(j, "model.vocab");
  j = job();
  j.run.save.folder = "../elsewhere";
  refused(j, "run.save.folder");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "run"));  // nothing refused has left a trace
  run(job());
  refused(job(), "run.folder", 2, false);  // an earlier run's models are there
}

}  // namespace
}  // namespace strata::train
