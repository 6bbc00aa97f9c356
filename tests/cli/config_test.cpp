// The command line itself, and the verb config, as a user runs them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class Config : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("strata-cli-" + std::to_string(::getpid()) + "-" + test->name());
    fs::create_directories(folder_);
    std::ofstream(folder_ / "job.toml") << "[model]\npreset = \"gpt2-124m\"\n[data]\ntrain = [{ path = \"text\" }]\n"
                                           "[batch]\nglobal = 512\nmicro = 4\n[run]\nsteps = 100\n";
  }
  void TearDown() override { fs::remove_all(folder_); }
  Outcome config(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "config");
    return strata(arguments, {.folder = folder_.string()});
  }
  fs::path folder_;
};

TEST_F(Config, CheckSaysWhatTheJobComesTo) {
  const Outcome outcome = config({"check", "job.toml", "--ranks", "4"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_THAT(outcome.out, StartsWith("job.toml: the job is sound\n"));
  EXPECT_THAT(outcome.out, HasSubstr("124.4M parameters"));
  EXPECT_THAT(outcome.out,
              HasSubstr("512 sequences = 4 micro x 32 accumulation x 4 data-parallel ranks (4 ranks / 1 tensor / 1 "
                        "pipeline)"));
  EXPECT_THAT(config({"check", "job.toml"}).out, HasSubstr("--ranks N shows the arithmetic"));
}

TEST_F(Config, CheckAsJson) {
  const Outcome outcome = config({"check", "job.toml", "--ranks=8", "--json", "--set", "placement.preset=zero-topo",
                                  "--set", "mesh.levels=[2, 4, \"*\"]"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["ok"], true);
  EXPECT_EQ(result["model"]["parameters"], 124439808);
  EXPECT_EQ(result["batch"]["accumulation"], 16);
  EXPECT_EQ(result["levels"][1], json({{"name", "node"}, {"width", 4}}));
  EXPECT_EQ(result["placement"], "zero-topo: weights over package, gradients over node, optimizer over system");
  EXPECT_EQ(result["digest"].get<std::string>().size(), 16u);
  // The same keys without --ranks.
  const json fewer = json::parse(config({"check", "job.toml", "--json"}).out);
  EXPECT_EQ(fewer.size(), result.size());
  EXPECT_TRUE(fewer["batch"].is_null());
}

TEST_F(Config, BatchThatDoesNotWorkOut) {
  const Outcome outcome = config({"check", "job.toml", "--ranks", "3", "--json"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              StartsWith("strata: job.toml: batch.global 512 = batch.micro 4 x accumulation x 3 data-parallel ranks"));
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["code"], 2);
  EXPECT_EQ("strata: " + result["error"].get<std::string>() + "\n", outcome.err);
  EXPECT_EQ(
      config({"check", "job.toml", "--ranks", "12", "--set", "mesh.levels=[2, 4, \"*\"]", "--set", "mesh.tensor=3"})
          .code,
      2);
}

TEST_F(Config, ShowPrintsAJobThatShowsTheSame) {
  const Outcome first =
      config({"show", "job.toml", "--set", "optimizer.lr=6e-4", "--set", "optimizer.schedule.shape=cosine"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("lr = 0.0006\n"));
  EXPECT_THAT(first.out, HasSubstr("train = [{ path = \"" + (folder_ / "text").string() + "\", weight = 1.0 }]\n"));
  fs::create_directories(folder_ / "elsewhere");
  std::ofstream(folder_ / "elsewhere" / "merged.toml") << first.out;
  const Outcome second = config({"show", "elsewhere/merged.toml"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.out, first.out);
}

TEST_F(Config, ShowAsJson) {
  const json result = json::parse(config({"show", "job.toml", "--json"}).out);
  EXPECT_EQ(result["model"]["layers"], 12);
  EXPECT_EQ(result["batch"]["sequence"], 1024);
  EXPECT_EQ(result["run"]["save"]["folder"], "checkpoints");
}

TEST_F(Config, KeysListsTheTable) {
  EXPECT_THAT(config({"keys"}).out, HasSubstr("## [optimizer]"));
  const json result = json::parse(config({"keys", "--json"}).out);
  EXPECT_GT(result["keys"].size(), 60u);
  EXPECT_EQ(result["keys"][0]["key"], "model.preset");
}

TEST_F(Config, OptionsTakeOneValueEach) {
  // What follows a --set is the file, not another value.
  EXPECT_EQ(config({"check", "--set", "batch.micro=2", "job.toml"}).code, 0);
  EXPECT_EQ(config({"check", "job.toml", "--set", "batch.micro=2", "batch.global=4"}).code, 2);
  EXPECT_EQ(config({"check", "job.toml", "--set"}).code, 2);
}

TEST_F(Config, BadInputIsExitCodeTwoOnStandardError) {
  std::ofstream(folder_ / "bad.toml") << "[batch]\nglobl = 4\n";
  const Outcome outcome = config({"check", "bad.toml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_EQ(outcome.err, "strata: bad.toml:2: batch.globl: unknown key (did you mean \"batch.global\"?)\n");
  const Outcome missing = config({"show", "nowhere.toml", "--json"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(json::parse(missing.out)["code"], 2);
  EXPECT_THAT(json::parse(missing.out)["error"].get<std::string>(), StartsWith("nowhere.toml: cannot open"));
  // Bytes that are no UTF-8 must not break the JSON.
  const Outcome bytes = config({"show", "\xff.toml", "--json"});
  EXPECT_EQ(bytes.code, 2);
  EXPECT_TRUE(json::accept(bytes.out)) << bytes.out;
}

struct BadLine {
  std::vector<std::string> arguments;
  std::string message;
};

TEST(CommandLine, ThatDoesNotParseIsExitCodeTwo) {
  const BadLine table[] = {
      {{}, "a verb is wanted: "},
      {{"confg"}, "unknown verb confg (did you mean \"config\"?); see strata --help"},
      {{"config"}, "a verb is wanted: check, show, keys; see strata config --help"},
      {{"config", "chek", "x"}, "unknown verb chek (did you mean \"check\"?); see strata config --help"},
      {{"config", "check"}, "FILE is required; see strata config check --help"},
      {{"config", "check", "x", "y"}, "unexpected argument y"},
      {{"config", "check", "x", "--rank", "3"}, "unknown option --rank (did you mean \"--ranks\"?)"},
      {{"config", "check", "x", "--rank=3"}, "unknown option --rank (did you mean \"--ranks\"?)"},
      {{"config", "check", "x", "--ranks", "0"}, "--ranks"},
      {{"config", "check", "x", "--ranks", "many"}, "--ranks"},
      {{"config", "check", "x", "--ranks"}, "--ranks"},
      {{"--jsn"}, "unknown option --jsn"},
  };
  for (const auto& [arguments, message] : table) {
    const Outcome outcome = strata(arguments);
    const std::string line = testing::PrintToString(arguments);
    EXPECT_EQ(outcome.code, 2) << line;
    EXPECT_THAT(outcome.out, IsEmpty()) << line;
    EXPECT_THAT(outcome.err, StartsWith("strata: ")) << line;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << line;

    // And as JSON, wherever the flag stands. (Not every place of it parses: the error is JSON all the same.)
    std::vector<std::string> with_json = arguments;
    with_json.push_back("--json");
    const Outcome as_json = strata(with_json);
    EXPECT_EQ(as_json.code, 2) << line;
    ASSERT_TRUE(json::accept(as_json.out)) << line << as_json.out;
    EXPECT_EQ(json::parse(as_json.out)["code"], 2) << line;
  }
}

TEST(CommandLine, HelpAndVersionAreNoErrors) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"config", "--help"}, {"config", "check", "--help"}, {"--version"}}) {
    const Outcome outcome = strata(arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.err, IsEmpty());
    EXPECT_FALSE(outcome.out.empty());
  }
  EXPECT_THAT(strata({"--help"}).out, HasSubstr("Exit codes: 0 done, 2 bad input"));
  EXPECT_THAT(strata({"config", "check", "--help"}).out, HasSubstr("--set"));
}

TEST(CommandLine, OutputThatCannotBeWrittenIsAFailedRun) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Outcome outcome = strata({"config", "keys"}, {.out_to = "/dev/full"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err, "strata: cannot write to standard output\n");
}

TEST(RunProgram, TellsHowAProgramEnded) {
  EXPECT_EQ(run_program("true", {}).code, 0);
  EXPECT_EQ(run_program("false", {}).code, 1);
  EXPECT_EQ(run_program("/nowhere/program", {}).code, 127);
  EXPECT_EQ(run_program("sh", {"-c", "kill -TERM $$"}).code, 128 + 15);
  const Outcome both = run_program("sh", {"-c", "echo \"$A\"; echo err >&2"}, {.environment = {{"A", "x y"}}});
  EXPECT_EQ(both.out, "x y\n");
  EXPECT_EQ(both.err, "err\n");
}

}  // namespace
}  // namespace strata::cli
