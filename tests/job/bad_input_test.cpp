// Every kind of bad input: each is refused as bad input, with the file and line (or the option), the key, and what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "job/keys.h"
#include "job_text.h"

namespace strata::job {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A line put in place of one that starts with `replaces` (or after the last line), and what the message must say besides
/// "/jobs/job.toml:LINE: ".
struct Bad {
  std::string replaces, with, message;
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.with; }

/// whole_file with the change, and the number of the changed line.
std::pair<std::string, int> changed(const Bad& bad) {
  const std::string text(whole_file);
  size_t begin = text.size(), end = text.size();
  if (!bad.replaces.empty()) {
    begin = text.find("\n" + bad.replaces) + 1;
    EXPECT_NE(begin, 0u) << bad.replaces;
    end = text.find('\n', begin) + 1;
  }
  const int line = static_cast<int>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(begin), '\n')) + 1;
  return {text.substr(0, begin) + bad.with + "\n" + text.substr(end), line};
}

class BadLine : public testing::TestWithParam<Bad> {};

TEST_P(BadLine, IsRefusedWithItsLineAndKey) {
  const auto [text, line] = changed(GetParam());
  EXPECT_THAT(refusal(text), HasSubstr(fmt::format("/jobs/job.toml:{}: {}", line, GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Unknown, BadLine,
    testing::Values(
        Bad{"micro", "mirco = 4", "batch.mirco: unknown key (did you mean \"batch.micro\"?)"},
        Bad{"lr", "learning_rate = 1.0", "optimizer.learning_rate: unknown key"},
        Bad{"micro", "lr = 1.0", "batch.lr: unknown key (did you mean \"optimizer.lr\"?)"},
        Bad{"[batch]", "[bach]", "bach: unknown key (did you mean \"batch\"?)"},
        Bad{"", "[nonsense]", "nonsense: unknown key"},
        Bad{"", "qqqqqqqqqqqqqqqqqqqqqqq = 1", "run.qqqqqqqqqqqqqqqqqqqqqqq: unknown key"},
        Bad{"save", "save = { every = 1, keeep = 3 }", "run.save.keeep: unknown key (did you mean \"run.save.keep\"?)"},
        Bad{"schedule = {", "schedule = { shap = \"cosine\" }",
            "optimizer.schedule.shap: unknown key (did you mean \"optimizer.schedule.shape\"?)"},
        Bad{"train", "train = [{ path = \"x\", wieght = 1.0 }]",
            "data.train[0].wieght: unknown key (did you mean \"weight\"?)"},
        Bad{"micro", "\"micro.x\" = 4", "batch.micro.x: "},
        Bad{"micro", "micro.x = 4", "batch.micro: must be a whole number, not a table"},
        Bad{"micro", "\"\" = 4", "\"batch.\": unknown key"}, Bad{"micro", "\"mi\\u001bcro\" = 4", "\"batch.mi"},
        Bad{"preset = \"zero-topo\"", "hops.gradient = [[\"package\"]]", "placement.hops.gradient: unknown key"}));

INSTANTIATE_TEST_SUITE_P(Duplicate, BadLine,
                         testing::Values(Bad{"micro", "global = 4", ""}, Bad{"save", "seed = 4", ""},
                                         Bad{"[precision]", "[batch]", ""},
                                         Bad{"save", "save = { every = 1, every = 2 }", ""},
                                         Bad{"train", "train = [{ path = \"x\", path = \"y\" }]", ""}));

INSTANTIATE_TEST_SUITE_P(
    Mistyped, BadLine,
    testing::Values(
        Bad{"micro", "micro = \"four\"", "batch.micro: must be a whole number, not the string \"four\""},
        Bad{"micro", "micro = 4.0", "batch.micro: must be a whole number, not 4"},
        Bad{"micro", "micro = true", "batch.micro: must be a whole number, not true"},
        Bad{"micro", "micro = [4]", "batch.micro: must be a whole number, not a list"},
        Bad{"micro", "micro = 1979-05-27", "batch.micro: must be a whole number, not a date or time"},
        Bad{"lr", "lr = \"1e-4\"", "optimizer.lr: must be a number, not the string \"1e-4\""},
        Bad{"betas", "betas = 0.9", "optimizer.betas: must be a list of two numbers, not 0.9"},
        Bad{"betas", "betas = [0.9, \"x\"]", "optimizer.betas[1]: must be a number"},
        Bad{"betas", "betas = [0.9]", "optimizer.betas: must be a list of two numbers, not 1"},
        Bad{"validation", "validation = 3", "data.validation: must be a string, not 3"},
        Bad{"train", "train = \"x\"", "data.train: must be a list of"},
        Bad{"train", "train = [\"x\"]", "data.train[0]: must be { path"},
        Bad{"train", "train = [{ weight = 1.0 }]", "data.train[0]: path is missing"},
        Bad{"train", "train = [{ path = 1 }]", "data.train[0].path: must be a string"},
        Bad{"save", "save = 5", "run.save: is a table of keys"},
        Bad{"schedule = {", "schedule = \"cosine\"", "optimizer.schedule: is a table of keys"},
        Bad{"preset = \"zero-topo\"", "wires = \"int8\"", "placement.wires: is a table of keys"},
        Bad{"preset = \"zero-topo\"", "wires = { weights = 8 }", "placement.wires.weights: must be one of"},
        Bad{"preset = \"zero-topo\"", "wires = { error_feedback = 1 }",
            "placement.wires.error_feedback: must be true or false, not 1"},
        Bad{"preset = \"zero-topo\"", "hops = [\"package\"]", "placement.hops[0]: must be a list of levels"},
        Bad{"preset = \"zero-topo\"", "hops = 2", "placement.hops: must be a list of lists"},
        Bad{"tensor", "levels = [2.5]", "mesh.levels[0]: must be a whole number or \"*\""},
        Bad{"tensor", "levels = \"*\"", "mesh.levels: must be a list such as"},
        Bad{"tensor", "order = \"tensor\"", "mesh.order: must be a list"},
        Bad{"preset = \"gpt-neox", "tied = \"yes\"", "model.tied: must be true or false, not the string \"yes\""}));

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, BadLine,
    testing::Values(
        Bad{"micro", "micro = 0", "batch.micro: 0 must be at least 1"},
        Bad{"seed", "trace = [3, 0]", "run.trace[1]: 0 must be at least 1"},
        Bad{"seed", "trace = 3", "run.trace: must be a list of step numbers, not 3"},
        Bad{"micro", "micro = -4", "batch.micro: -4 must be at least 1"},
        Bad{"micro", "micro = 3000000000", "batch.micro: 3000000000 must be at least 1 and at most 2147483647"},
        Bad{"micro", "micro = 9223372036854775807", "batch.micro: 9223372036854775807 must be"},
        Bad{"micro", "micro = 9223372036854775808", ""},  // no TOML integer
        Bad{"steps", "steps = 0", "run.steps: 0 must be at least 1"},
        Bad{"seed", "seed = -1", "run.seed: -1 must be at least 0"},
        Bad{"seed", "seed = 9007199254740993",
            "run.seed: 9007199254740993 must be at least 0 and at most 9007199254740992"},
        Bad{"threads", "threads = 0", "run.threads: 0 must be"},
        Bad{"prefetch", "prefetch = -1", "schedule.prefetch: -1 must be"},
        Bad{"prefetch", "overlap = -1", "schedule.overlap: -1 must be"},
        Bad{"lr", "lr = 0", "optimizer.lr: 0 must be above 0"},
        Bad{"lr", "lr = -1e-4", "optimizer.lr: -0.0001 must be above 0"},
        Bad{"lr", "lr = nan", "optimizer.lr: nan must be above 0 and finite"},
        Bad{"lr", "lr = inf", "optimizer.lr: inf must be above 0 and finite"},
        Bad{"betas", "betas = [0.9, 1.0]", "optimizer.betas[1]: 1 must be at least 0 and below 1"},
        Bad{"betas", "betas = [-0.1, 0.9]", "optimizer.betas[0]: -0.1 must be at least 0 and below 1"},
        Bad{"clip", "clip = -1.0", "optimizer.clip: -1 must be at least 0"},
        Bad{"clip", "epsilon = 0.0", "optimizer.epsilon: 0 must be above 0"},
        Bad{"weight_decay =", "weight_decay = -0.1", "optimizer.weight_decay: -0.1 must be at least 0"},
        Bad{"schedule = {", "schedule = { warmup = -1 }", "optimizer.schedule.warmup: -1 must be at least 0"},
        Bad{"schedule = {", "schedule = { warmup = 1.5 }",
            "optimizer.schedule.warmup: 1.5 must be a share below 1 or a whole number"},
        Bad{"schedule = {", "schedule = { shape = \"wsd\", decay = 2.5 }",
            "optimizer.schedule.decay: 2.5 must be a share"},
        Bad{"save", "save = { keep = 0 }", "run.save.keep: 0 must be at least 1"},
        Bad{"save", "save = { folder = \"\" }", "run.save.folder: must not be empty"},
        Bad{"train", "train = [{ path = \"x\", weight = 0.0 }]", "data.train[0].weight: 0 must be above 0"},
        Bad{"train", "train = [{ path = \"\" }]", "data.train[0].path: must not be empty"},
        Bad{"validation", "split = [1]", "data.split: must be a list of two or three numbers"},
        Bad{"validation", "split = \"969\"", "data.split: must be a list of two or three numbers"},
        Bad{"validation", "split = \"969,,1\"", "data.split: \"\" is not a number from 0 up"},
        Bad{"validation", "split = \"969,x\"", "data.split: \"x\" is not a number from 0 up"},
        Bad{"validation", "split = \"0,1\"", "data.split: leaves nothing for training"},
        Bad{"validation", "split = [0, 1]", "data.split: leaves nothing for training"},
        Bad{"validation", "split = [1, -1]", "data.split[1]: -1 must be at least 0"},
        Bad{"tensor", "tensor = 0", "mesh.tensor: 0 must be at least 1"},
        Bad{"tensor", "levels = []", "mesh.levels: must name at least one level"},
        Bad{"tensor", "levels = [2, \"*\", 2]", "mesh.levels[1]: only the last (outermost) width can be \"*\""},
        Bad{"tensor", "levels = [2, 0, 2]", "mesh.levels[1]: 0 must be at least 1"},
        Bad{"tensor", "levels = [2, \"many\"]", "mesh.levels[1]: must be a whole number or \"*\""},
        Bad{"tensor", "levels = [2, 4]", "mesh.levels: 2 levels have no usual names"},
        Bad{"tensor", "level_names = [\"a\", \"b\"]", "mesh.level_names: needs mesh.levels"},
        Bad{"tensor", "order = [\"data\", \"data\", \"tensor\"]", "mesh.order: must hold"},
        Bad{"preset = \"zero-topo\"", "wires = { int8_block = 500 }",
            "placement.wires.int8_block: 500 must divide the grain"},
        Bad{"preset = \"zero-topo\"", "wires = { int4_block = 4096 }", "placement.wires.int4_block: 4096 must be"},
        Bad{"preset = \"zero-topo\"", "hops = []", "placement.hops: must hold at least one hop"},
        Bad{"preset = \"zero-topo\"", "hops = [[]]", "placement.hops[0]: must name at least one level"},
        Bad{"preset = \"zero-topo\"", "hops = [[\"node\", \"node\"]]",
            "placement.hops[0]: level \"node\" is crossed twice"},
        Bad{"preset = \"gpt-neox", "dropout = 1.0", "model.dropout: 1 must be at least 0 and below 1"},
        Bad{"preset = \"gpt-neox", "layers = 0", "model.layers: 0 must be at least 1"}));

INSTANTIATE_TEST_SUITE_P(
    NotAChoice, BadLine,
    testing::Values(
        Bad{"recompute", "recompute = \"ful\"",
            "schedule.recompute: \"ful\" is not one of \"none\" | \"selective\" | \"full\" (did you mean \"full\"?)"},
        Bad{"pipeline = \"1f1b\"", "pipeline = \"1F1B\"", "schedule.pipeline: \"1F1B\" is not one of"},
        Bad{"compute", "compute = \"fp8\"", "precision.compute: \"fp8\" is not one of \"fp32\" | \"bf16\" | \"fp16\""},
        Bad{"compute", "gradients = \"fp16\"", "precision.gradients: \"fp16\" is not one of"},
        Bad{"name", "name = \"adam\"",
            "optimizer.name: \"adam\" is not one of \"adamw\" | \"adamw8bit\" (did you mean \"adamw\"?)"},
        Bad{"weight_decay_on", "weight_decay_on = \"some\"", "optimizer.weight_decay_on: \"some\" is not one of"},
        Bad{"schedule = {", "schedule = { shape = \"cos\" }", "optimizer.schedule.shape: \"cos\" is not one of"},
        Bad{"preset = \"zero-topo\"", "preset = \"zero-top\"", "placement.preset: \"zero-top\" is not one of"},
        Bad{"preset = \"zero-topo\"", "wires = { update = \"int2\" }",
            "placement.wires.update: \"int2\" is not one of"},
        Bad{"preset = \"zero-topo\"", "wires = { update = { node = \"int2\" } }",
            "placement.wires.update.node: \"int2\" is not one of"},
        Bad{"preset = \"zero-topo\"", "wires = { rounding = \"up\" }",
            "placement.wires.rounding: \"up\" is not one of"},
        Bad{"preset = \"gpt-neox", "family = \"bert\"",
            "model.family: \"bert\" is not one of \"gpt2\" | \"gpt_neox\" | \"llama\""},
        Bad{"preset = \"gpt-neox", "preset = \"gpt-neox-20\"",
            "model.preset: there is no preset \"gpt-neox-20\" (did you mean \"gpt-neox-20b\"?)"},
        Bad{"preset = \"gpt-neox", "preset = \"\"", "model.preset: must not be empty"}));

INSTANTIATE_TEST_SUITE_P(
    AgainstAnotherKey, BadLine,
    testing::Values(Bad{"micro", "sequence = 4096",
                        "batch.sequence: 4096 tokens are longer than model.sequence = 2048"},
                    Bad{"seed", "trace = [1, 150001]", "run.trace: there is no step 150001 in a run of 150000"},
                    Bad{"pipeline = 1", "pipeline = 47",
                        "mesh.pipeline: 47 stages of 1 chunk make 47 chunks, and the model has 46 units"},
                    Bad{"schedule = {", "schedule = { shape = \"cosine\", min_lr = 1.0 }",
                        "optimizer.schedule.min_lr: 1 is above optimizer.lr"},
                    Bad{"schedule = {", "schedule = { warmup = 150001 }",
                        "optimizer.schedule.warmup: 150001 steps of warm-up in a run of 150000"},
                    Bad{"schedule = {", "schedule = { shape = \"wsd\", warmup = 0.6, decay = 0.5 }",
                        "optimizer.schedule.decay: 90000 steps of warm-up and 75000 of decay do not fit"},
                    Bad{"schedule = {", "schedule = { shape = \"cosine\", decay = 0.1 }",
                        "optimizer.schedule.decay: only for shape wsd"},
                    Bad{"schedule = {", "schedule = { min_lr = 1e-5 }",
                        "optimizer.schedule.min_lr: only for shape cosine, linear or wsd"}),
    [](const auto& tested) { return std::to_string(tested.index); });

// Errors that no one line is to blame for name the file.
TEST(BadFile, RulesBetweenLines) {
  const auto with = [](std::string_view extra) { return std::string(small_file) + std::string(extra); };
  EXPECT_THAT(refusal(with("[placement]\npreset = \"zero1\"\nlevel = \"node\"\n")),
              HasSubstr("/jobs/job.toml:14: placement.level: only for preset hsdp or mics"));
  EXPECT_THAT(refusal(with("[placement]\nweights = \"node\"\npreset = \"zero1\"\n")),
              HasSubstr("/jobs/job.toml:13: placement.weights: cannot be given together with placement.preset "
                        "(/jobs/job.toml:14); keep one of them"));
  EXPECT_THAT(refusal(with("[data]\nvalidation = \"v\"\nsplit = [1, 1]\n")),
              HasSubstr("/jobs/job.toml:14: data.split: cannot be given together with data.validation"));
  EXPECT_THAT(refusal(with("[data]\ntrain = [{ path = \"x\" }]\n"), {"run.validate.every=5"}),
              HasSubstr("--set run.validate.every=5: run.validate.every: there is nothing to validate on"));
  EXPECT_THAT(refusal(with("[precision]\ngradients = \"bf16\"\n")),
              HasSubstr("/jobs/job.toml:13: precision.gradients: gradients of fp32 runs travel as fp32"));
  EXPECT_THAT(refusal(with(""), {"batch.micro=3"}),
              HasSubstr("/jobs/job.toml: batch.global 8 = batch.micro 3 x accumulation x 1 data-parallel ranks"));
  EXPECT_THAT(refusal(with("[mesh]\nlevels = [2, 2, \"*\"]\nlevel_names = [\"a\", \"b\"]\n")),
              HasSubstr("/jobs/job.toml:14: mesh.level_names: has 2 names for the 3 levels"));
  EXPECT_THAT(refusal(with("[mesh]\nlevels = [2, 2]\nlevel_names = [\"a\", \"a\"]\n")),
              HasSubstr("\"a\" names two levels"));
  EXPECT_THAT(refusal(with("[mesh]\nlevels = [2, 2]\nlevel_names = [\"all\", \"a\"]\n")),
              HasSubstr("\"all\" cannot name a level"));
}

TEST(BadFile, MissingKeys) {
  EXPECT_THAT(refusal(""), HasSubstr("/jobs/job.toml: batch.global is missing; it is required: Sequences a step"));
  EXPECT_THAT(refusal("[batch]\nglobal = 1\n"), HasSubstr("/jobs/job.toml: run.steps is missing"));
  EXPECT_THAT(
      refusal("[batch]\nglobal = 1\n[run]\nsteps = 1\n"),
      HasSubstr("/jobs/job.toml: [model] lacks family, layers, hidden, heads, vocab, sequence; or give preset"));
  EXPECT_THAT(refusal(small_file, {"model.family=llama"}), HasSubstr("[model] lacks ffn"));
}

TEST(BadFile, ModelsThatCannotBe) {
  EXPECT_THAT(refusal(small_file, {"model.heads=5"}),
              HasSubstr("--set model.heads=5: model.heads: hidden 64 / heads 5 is not whole"));
  EXPECT_THAT(refusal(small_file, {"model.rotary_base=1e4"}),
              HasSubstr("model.rotary_base: only for family gpt_neox or llama"));
  EXPECT_THAT(refusal(small_file, {"model.rope_scaling.factor=8"}),
              HasSubstr("model.rope_scaling.factor: only for family llama"));
  EXPECT_THAT(refusal(small_file, {"model.parallel_residual=true"}), HasSubstr("only for family gpt_neox"));
  EXPECT_THAT(refusal(small_file, {"model.initialisation=small_wang", "model.init_std=0.01"}),
              HasSubstr("model.init_std: only for initialisation \"gpt2\""));
  EXPECT_THAT(refusal(small_file, {"model.kv_heads=2"}),
              HasSubstr("/jobs/job.toml with --set model.kv_heads=2: [model]: kv_heads"));
  EXPECT_THAT(refusal(small_file, {"model.activation=swiglu"}), HasSubstr("swiglu"));
}

TEST(BadFile, AnOptionCannotHalfReplaceTheModel) {
  EXPECT_THAT(
      refusal(small_file, {"model.preset=gpt2-124m"}),
      HasSubstr(
          "--set model.preset=gpt2-124m: model.preset: /jobs/job.toml:2: model.family gives the model's dimensions"));
}

TEST(BadFile, WhatIsNoToml) {
  for (const char* text : {"[model", "model", "= 3", "[batch]\nglobal = ", "a = \"x", "a = 'x", "a = [1,", "a = {",
                           "\x01", "a = 1 b = 2", "[a]\n[a]", "a = \"\xff\"", "\xff\xfe", "a = 99999999999999999999",
                           "a = 1979-13-01", "a = \"\\q\"", "# comment\x00", "a.b = 1\na = 2"})
    EXPECT_THAT(refusal(text), testing::StartsWith("/jobs/job.toml:")) << text;
  EXPECT_THAT(refusal(std::string(100000, '[')), testing::StartsWith("/jobs/job.toml:"));
  EXPECT_THAT(refusal("a = " + std::string(100000, '[')), testing::StartsWith("/jobs/job.toml:"));
  EXPECT_THAT(refusal(std::string("a = \"\0\"", 7)), testing::StartsWith("/jobs/job.toml:"));
}

TEST(BadFile, SecondOfADuplicateIsTheOneNamed) {
  EXPECT_THAT(refusal("[batch]\nglobal = 8\nmicro = 2\nglobal = 16\n"),
              AllOf(HasSubstr("/jobs/job.toml:4: "), HasSubstr("global"), HasSubstr("can be given only once")));
}

TEST(BadFile, ThatIsNotThere) {
  EXPECT_THROW(
      {
        try {
          load("/nowhere/job.toml");
        } catch (const Error& error) {
          EXPECT_EQ(error.exit_code(), 2);
          EXPECT_THAT(error.what(), HasSubstr("/nowhere/job.toml"));
          throw;
        }
      },
      Error);
  EXPECT_THROW(load(testing::TempDir()), Error);  // a folder
}

TEST(BadOption, NamesTheOption) {
  struct {
    const char *option, *message;
  } const table[] = {
      {"batch.micro", "--set batch.micro: must be of the form a.b=c"},
      {"=3", "--set =3: must be of the form a.b=c"},
      {"", "--set : must be of the form a.b=c"},
      {"batch.mirco=3", "--set batch.mirco=3: batch.mirco: unknown key (did you mean \"batch.micro\"?)"},
      {"micro=3", "--set micro=3: micro: unknown key (did you mean \"batch.micro\"?)"},
      {"bach.micro=3", "--set bach.micro=3: bach.micro: unknown key (did you mean \"batch.micro\"?)"},
      {"batch=3", "--set batch=3: batch: is a table of keys (batch.KEY), not a value"},
      {"batch={mirco=3}", "batch.mirco: unknown key"},
      {"batch.micro=four", "batch.micro: must be a whole number, not the string \"four\""},
      {"batch.micro=", "batch.micro: must be a whole number, not the string \"\""},
      {"batch.micro=0", "--set batch.micro=0: batch.micro: 0 must be at least 1"},
      {"batch.micro.x=1", "batch.micro.x: batch.micro is given whole (whole number)"},
      {"placement.hops.gradients=[[\"node\"]]", "placement.hops.gradients: placement.hops is given whole"},
      {"optimizer.betas=[0.9", "--set optimizer.betas=[0.9: "},
      {"optimizer.betas=[0.9, 2]", "optimizer.betas[1]: 2 must be at least 0 and below 1"},
      {"run.folder=\"x", "--set run.folder=\"x: "},
      {"run.save={folder=2024}", "run.save.folder: must be a string, not 2024"},
      {"run.folder=", "run.folder: must not be empty"},
      {"batch.micro=1\nmicro=2", "must be a whole number, not the string"},
      {"run.folder=\xff", "--set run.folder=...: the value is not UTF-8"},
      {"schedule.recompute=ful", "did you mean \"full\"?"},
      {"schedule.recompute=[1]", "schedule.recompute: must be one of"},
      {"model..layers=3", "unknown key"},
      {".=3", "unknown key"},
      {"model.=3", "unknown key"},
      {"optimizer.schedule.min_lr=1e-5",
       "--set optimizer.schedule.min_lr=1e-5: optimizer.schedule.min_lr: only for shape"},
  };
  for (const auto& [option, message] : table) EXPECT_THAT(refusal(small_file, {option}), HasSubstr(message)) << option;
}

TEST(BadOption, AnOverriddenValueMustStillBeLegal) {
  const std::string moved = std::string(small_file) + "threads = \"x\"\n";
  EXPECT_THAT(refusal(moved, {"run.threads=2"}), HasSubstr("/jobs/job.toml:12: run.threads: must be a whole number"));
}

// Each key refuses at least one type: none takes everything.
TEST(BadOption, NoKeyTakesAnyType) {
  for (const KeyDoc& key : keys()) {
    int refused = 0;
    for (const char* value : {"[[[1979-05-27]]]", "{ zzz = 1979-05-27 }", "1979-05-27"}) {
      try {
        parsed(small_file, {fmt::format("{}={}", key.name, value)});
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(key.name));
        ++refused;
      }
    }
    EXPECT_GE(refused, 2) << key.name;
  }
}

}  // namespace
}  // namespace strata::job
