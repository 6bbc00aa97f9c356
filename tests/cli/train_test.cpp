// The verbs a user runs in the first minute, as a user runs them: data build, train, generate, verify, checkpoint, bench.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/run.h"
#include "core/random.h"
#include "support/scratch.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Run : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(path("text.txt"));
    const char* words[] = {"the", "cat", "sat", "on", "a", "mat", "and", "saw", "another", "dog"};
    for (uint64_t i = 0; i < 4000; ++i) text << words[philox(1, i)[0] % 10] << (i % 12 == 11 ? ".\n" : " ");
    text.close();
    const Outcome built =
        strata({"data", "build", "--text", path("text.txt"), "--bytes", "--out", path("text"), "--validation", "0.1"});
    ASSERT_EQ(built.code, 0) << built.err;
    write_job("");
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome strata(const std::vector<std::string>& arguments, const RunOptions& options = {}) const {
    return run_program(STRATA_PROGRAM, arguments, options);
  }
  void write_job(const std::string& more) const {
    std::ofstream(path("job.toml")) << R"([model]
family = "llama"
layers = 2
hidden = 32
heads = 2
ffn = 64
vocab = 257
sequence = 32
[data]
train = [{ path = "text" }]
tokenizer = "bytes"
validation = "text_validation"
[batch]
global = 8
micro = 4
[optimizer]
lr = 1e-2
[run]
steps = 20
folder = ")" << path("run") << "\"\n"
                                    << more;
  }
  void refused(const std::vector<std::string>& arguments, const std::string& part, int code = 2) const {
    const Outcome outcome = strata(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << "wanted: " << part << "\nfound: " << outcome.err;
  }
  std::vector<std::string> files(const std::string& below) const {
    std::vector<std::string> names;
    if (fs::exists(path(below)))
      for (const auto& entry : fs::recursive_directory_iterator(path(below)))
        names.push_back(entry.path().filename().string());
    return names;
  }
  test::Scratch folder_;
};

TEST_F(Run, TrainsSavesAndGeneratesTheSameTwice) {
  std::string texts[2];
  for (int round = 0; round < 2; ++round) {
    const Outcome trained = strata({"train", path("job.toml"), "--replace", "--json"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Json result = Json::parse(trained.out);
    EXPECT_EQ(result["steps"], 20);
    const std::string saved = result["saved"];
    const Outcome text = strata({"generate", saved, "--tokenizer", "bytes", "--prompt", "the ", "--tokens", "20"});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(text.out.substr(0, 4), "the ");
    texts[round] = text.out;
  }
  EXPECT_EQ(texts[0], texts[1]);
  for (const char* name : {"run/job.toml", "run/metrics.jsonl", "run/tensorboard", "run/log/rank-0.log"})
    EXPECT_TRUE(fs::exists(path(name))) << name;

  const std::string exported = path("exported");
  EXPECT_EQ(strata({"checkpoint", "export", path("run/checkpoints/step-000020"), exported}).code, 0);
  std::ifstream a(path("run/checkpoints/step-000020/model.safetensors"), std::ios::binary),
      b(exported + "/model.safetensors", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(a), {}), std::string(std::istreambuf_iterator<char>(b), {}));
  refused({"checkpoint", "export", exported, exported}, "exists");
}

TEST_F(Run, ProgressHasLossSpeedAndMemory) {
  const Outcome trained = strata({"train", path("job.toml"), "--set", "run.log_every=5"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const char* part : {"8 sequences = 4 micro x 2 accumulation", "step 20/20", "tokens/s", "planned", "left"})
    EXPECT_NE(trained.out.find(part), std::string::npos) << part << "\n" << trained.out;
}

TEST_F(Run, WritesTheTimelineOfTheStepsAskedFor) {
  const Outcome trained = strata({"train", path("job.toml"), "--set", "run.trace=[3, 20]"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find("step 3: traced on 1 rank"), std::string::npos) << trained.out;
  for (const char* name : {"run/trace-step-3.json", "run/trace-step-20.json"}) {
    std::ifstream file(path(name));
    EXPECT_FALSE(Json::parse(file)["traceEvents"].empty()) << name;
  }
  refused({"train", path("job.toml"), "--set", "run.trace=[21]"}, "run.trace");
}

TEST_F(Run, ExplainsForAnyNumberOfRanksWithoutDataOrDevice) {
  std::ofstream(path("plan.toml"))
      << "[model]\npreset = \"gpt-175b\"\n[batch]\nglobal = 768\nmicro = 1\n[mesh]\nlevels = [2, 4, \"*\"]\n"
         "[placement]\npreset = \"zero-topo\"\n[run]\nsteps = 1\n";
  const Outcome text = strata({"train", path("plan.toml"), "--explain", "--ranks", "384"});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* part : {"layer/forward", "Schedule", "Memory", "reduce-scatter gradients", "4 P / 2", "Traffic"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  const Outcome json = strata({"train", path("plan.toml"), "--explain", "--ranks", "384", "--json"});
  EXPECT_EQ(Json::parse(json.out)["ranks"], 384);
  EXPECT_EQ(Json::parse(json.out)["placement"]["states"][0]["ranks"], 2);
  EXPECT_EQ(Json::parse(json.out)["traffic"]["levels"][2]["level"], "system");
  refused({"train", path("plan.toml"), "--explain", "--ranks", "12"}, "12");
}

TEST_F(Run, BadInputIsRefusedAndLeavesNothing) {
  const std::string job = path("job.toml");
  refused({"train", job, "--set", "batch.global=7"}, "7");
  refused({"train", job, "--set", "batch.sequence=64"}, "sequence");
  refused({"train", job, "--set", "modle.layers=3"}, "did you mean");
  refused({"train", job, "--set", "run.steps=many"}, "run.steps");
  refused({"train", job, "--set", "model.vocab=100"}, "model.vocab");
  refused({"train", job, "--set", "data.train=[{path=\"absent\"}]"}, "absent");
  refused({"train", job, "--set", "mesh.pipeline=2"}, "mesh.pipeline");
  refused({"train", job, "--set", "precision.loss_scaling.window=5"}, "precision.loss_scaling.window");
  refused({"train", job, "--set", "optimizer.block=64"}, "optimizer.block");
  refused({"train", job, "--set", "mesh.pipeline=2"}, "mesh.pipeline");
  refused({"train", job, "--ranks", "2"}, "--explain");
  refused({"train", path("absent.toml")}, "absent.toml");
  EXPECT_TRUE(files("run/checkpoints").empty());
  // The losing run: a rate at which nothing can stay finite.
  refused({"train", job, "--replace", "--set", "optimizer.lr=1e30", "--set", "optimizer.clip=0"}, "not finite", 3);
  EXPECT_TRUE(files("run/checkpoints").empty());
  // Data whose index has lost its end.
  fs::resize_file(path("text.idx"), 40);
  refused({"train", job, "--replace"}, "text.idx");
}

TEST_F(Run, ARefusedRunLeavesTheFolderAsItWas) {
  ASSERT_EQ(strata({"train", path("job.toml")}).code, 0);
  const std::vector<std::string> before = files("run");
  refused({"train", path("job.toml"), "--replace", "--set", "model.vocab=5"}, "model.vocab");
  EXPECT_EQ(files("run"), before);
}

TEST_F(Run, AReaderThatGoesAwayCostsNoModel) {
  const Outcome outcome =
      run_program("/bin/bash", {"-c", "set -o pipefail; \"$0\" train \"$1\" --set run.log_every=1 | head -n 3",
                                STRATA_PROGRAM, path("job.toml")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(path("run/checkpoints/step-000020/model.safetensors")));
}

TEST_F(Run, ConfigCheckSaysWhetherThisBuildCanTrainTheJob) {
  EXPECT_NE(strata({"config", "check", path("job.toml")}).out.find("can train it"), std::string::npos);
  const Outcome tensor = strata({"config", "check", path("job.toml"), "--set", "mesh.tensor=2", "--json"});
  EXPECT_EQ(tensor.code, 0);
  EXPECT_FALSE(Json::parse(tensor.out)["trainable"].get<bool>());
  const Outcome stages = strata({"config", "check", path("job.toml"), "--set", "mesh.pipeline=2", "--json"});
  EXPECT_TRUE(Json::parse(stages.out)["trainable"].get<bool>());
  const Outcome bf16 = strata({"config", "check", path("job.toml"), "--set", "precision.compute=bf16", "--json"});
  EXPECT_TRUE(Json::parse(bf16.out)["trainable"].get<bool>());
}

TEST_F(Run, AnEarlierRunsModelsAreNotOverwrittenUnasked) {
  ASSERT_EQ(strata({"train", path("job.toml")}).code, 0);
  refused({"train", path("job.toml")}, "--replace");
  EXPECT_TRUE(fs::exists(path("run/checkpoints/step-000020/model.safetensors")));
}

TEST_F(Run, NoSpaceLeftIsAnErrorAndLeavesNoPartialModel) {
  // A file size limit stands in for a full disk: writes past it fail as they do there.
  const Outcome outcome =
      run_program("/bin/bash", {"-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"", STRATA_PROGRAM, "train",
                                path("job.toml"), "--set", "model.hidden=128", "--set", "run.steps=2"});
  EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.err;
  EXPECT_NE(outcome.err.find("safetensors"), std::string::npos) << outcome.err;
  for (const std::string& name : files("run/checkpoints")) EXPECT_EQ(name.find("step-"), std::string::npos) << name;
}

TEST_F(Run, ASignalSavesAndExitsWithFour) {
  for (const char* signal : {"INT", "USR1", "TERM"}) {
    // The shell sends the signal once the run has logged a step.
    const std::string script =
        "\"$0\" train \"$1\" --replace --set run.steps=1000000 --set run.log_every=1 --set run.folder=\"$2\" > \"$3\" "
        "& "
        "child=$!; for i in $(seq 600); do grep -q 'step 3/' \"$3\" 2> /dev/null && break; sleep 0.05; done; "
        "kill -s " +
        std::string(signal) + " $child; wait $child";
    const std::string run = path(std::string("run-") + signal);
    const Outcome outcome =
        run_program("/bin/bash", {"-c", script, STRATA_PROGRAM, path("job.toml"), run, path("progress")});
    EXPECT_EQ(outcome.code, 4) << signal << outcome.err;
    int models = 0;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints"))
      models += fs::exists(entry.path() / "model.safetensors");
    EXPECT_EQ(models, 1) << signal;
  }
}

TEST_F(Run, GenerateRefusesWhatDoesNotFit) {
  ASSERT_EQ(strata({"train", path("job.toml")}).code, 0);
  const std::string saved = path("run/checkpoints/step-000020");
  refused({"generate", saved, "--prompt", "x"}, "tokenizer");
  refused({"generate", saved, "--tokenizer", "bytes", "--prompt", "x", "--tokens", "32"}, "longest sequence");
  refused({"generate", path("absent"), "--prompt", "x"}, "absent");
  EXPECT_EQ(strata({"generate", saved, "--tokenizer", "bytes", "--prompt", "x"}).code,
            0);  // as many as there is room for
  const Outcome json = strata({"generate", saved, "--tokenizer", "bytes", "--tokens", "5", "--samples", "2", "--json"});
  EXPECT_EQ(Json::parse(json.out)["samples"].size(), 2u);
  // Truncated weights.
  fs::resize_file(saved + "/model.safetensors", fs::file_size(saved + "/model.safetensors") - 100);
  refused({"generate", saved, "--tokenizer", "bytes", "--prompt", "x", "--tokens", "3"}, "model.safetensors");
}

TEST_F(Run, VerifyNamesWhatIsMissing) {
  refused({"verify", "model", path("absent")}, "absent");
  ASSERT_EQ(strata({"train", path("job.toml")}).code, 0);
  refused({"verify", "model", path("run/checkpoints/step-000020")}, "reference.safetensors");
}

TEST_F(Run, BenchChecksWhatItTimes) {
  const Outcome outcome = strata({"bench", "step", "--batch", "1", "--seq", "32", "--steps", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["peak_bytes_planned"], json["peak_bytes_measured"]);
  EXPECT_TRUE(json["repeatable"]);
  EXPECT_GT(json["tokens_per_s"], 0);
  EXPECT_GT(json["gemm_fraction"], 0);
  refused({"bench", "step", "--seq", "100000"}, "longest");
}

}  // namespace
}  // namespace strata::cli
