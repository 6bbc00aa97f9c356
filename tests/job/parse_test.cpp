// What a job file means when it is sound: values, defaults, layers, paths, and the way back to text.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "job/job.h"
#include "job/keys.h"
#include "job_text.h"

namespace strata::job {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Parse, TheDesignsFile) {
  const Job job = parsed(whole_file);
  EXPECT_EQ(job.model.preset, "gpt-neox-20b");
  EXPECT_EQ(model::parameter_count(job.model), 20554567680);
  EXPECT_THAT(job.data.train, ElementsAre(Data::Source{"/jobs/pile_text_document", 1.0}));
  EXPECT_EQ(job.data.validation, "/jobs/pile_val_text_document");
  EXPECT_EQ(job.data.tokenizer, "/jobs/20B_tokenizer.json");
  EXPECT_EQ(job.batch, (Batch{.global = 1536, .micro = 4, .sequence = 2048}));
  EXPECT_EQ(job.placement.preset, "zero-topo");
  Schedule schedule;
  schedule.recompute = Recompute::selective;
  EXPECT_EQ(job.schedule, schedule);
  EXPECT_EQ(job.precision, (Precision{DType::bf16, DType::bf16, {}}));
  EXPECT_EQ(job.optimizer.lr, 0.97e-4);
  EXPECT_EQ(job.optimizer.beta2, 0.95);
  EXPECT_EQ(job.optimizer.epsilon, 1e-8);
  EXPECT_EQ(job.optimizer.weight_decay, 0.01);
  EXPECT_EQ(job.optimizer.weight_decay_on, DecayOn::matrices);
  EXPECT_EQ(job.optimizer.schedule,
            (optim::Schedule{.shape = optim::Shape::cosine, .warmup = 0.01, .min_lr = 0.97e-5}));
  EXPECT_EQ(job.run.steps, 150000);
  EXPECT_EQ(job.run.seed, 1234u);
  EXPECT_EQ(job.run.save, (Run::Save{1000, 3, "checkpoints"}));
  EXPECT_EQ(job.run.machine, "frontier");
}

TEST(Parse, DefaultsFollowFromWhatIsGiven) {
  const Job job = parsed(small_file);
  EXPECT_EQ(job.model.kv_heads, 4);
  EXPECT_EQ(job.model.head_dim, 16);
  EXPECT_EQ(job.model.ffn, 256);
  EXPECT_TRUE(job.model.tied);
  EXPECT_EQ(job.model.activation, model::Activation::gelu_tanh);
  EXPECT_EQ(job.batch.micro, 1);
  EXPECT_EQ(job.batch.sequence, 48);
  EXPECT_EQ(job.placement.preset, "ddp");
  EXPECT_EQ(job.precision.gradients, DType::f32);
  EXPECT_EQ(parsed(small_file, {"precision.compute=fp16"}).precision.gradients, DType::bf16);
  EXPECT_EQ(parsed(small_file, {"precision.compute=bf16", "precision.gradients=fp32"}).precision.gradients, DType::f32);
}

TEST(Parse, LossScalingIsForFp16AndBlocksAreFor8BitMoments) {
  const Job fp16 = parsed(small_file, {"precision.compute=fp16", "precision.loss_scaling.initial_power=12",
                                       "precision.loss_scaling.consecutive_hysteresis=true"});
  EXPECT_EQ(fp16.precision.scaling, (optim::LossScaling{.initial_power = 12, .consecutive = true}));
  EXPECT_THAT(refusal(small_file, {"precision.compute=bf16", "precision.loss_scaling.window=10"}),
              AllOf(HasSubstr("precision.loss_scaling.window"), HasSubstr("fp16")));
  EXPECT_THAT(refusal(small_file, {"precision.compute=fp16", "precision.loss_scaling.minimum=0"}),
              HasSubstr("precision.loss_scaling.minimum: 0 must be above 0"));

  EXPECT_EQ(parsed(small_file).optimizer.moment_block(), 0);
  EXPECT_EQ(parsed(small_file, {"optimizer.name=adamw8bit"}).optimizer.moment_block(), 256);
  EXPECT_EQ(parsed(small_file, {"optimizer.name=adamw8bit", "optimizer.block=2048"}).optimizer.moment_block(), 2048);
  EXPECT_THAT(refusal(small_file, {"optimizer.name=adamw8bit", "optimizer.block=192"}),
              HasSubstr("optimizer.block: 192 is not a multiple of 64 that divides 2048"));
  EXPECT_THAT(refusal(small_file, {"optimizer.name=adamw8bit", "optimizer.block=32"}),
              HasSubstr("optimizer.block: 32 must be at least 64"));
  EXPECT_THAT(refusal(small_file, {"optimizer.block=256"}),
              AllOf(HasSubstr("optimizer.block"), HasSubstr("adamw8bit")));
}

TEST(Parse, FamiliesBringTheirDefaults) {
  const Job neox = parsed(small_file, {"model.family=gpt_neox"});
  EXPECT_EQ(neox.model.activation, model::Activation::gelu_exact);
  EXPECT_EQ(neox.model.rotary_fraction, 0.25);
  EXPECT_TRUE(neox.model.parallel_residual);
  EXPECT_FALSE(neox.model.tied);
  EXPECT_EQ(neox.model.initialisation, model::Initialisation::small_wang);
  const Job llama = parsed(small_file, {"model.family=llama", "model.ffn=96", "model.kv_heads=2"});
  EXPECT_EQ(llama.model.activation, model::Activation::swiglu);
  EXPECT_EQ(llama.model.rotary_fraction, 1);
  EXPECT_FALSE(llama.model.attention_bias);
  EXPECT_FALSE(llama.model.mlp_bias);
  EXPECT_EQ(llama.model.kv_heads, 2);
}

TEST(Parse, BiasStandsForBothAndEitherCanDiffer) {
  const std::vector<std::string> llama = {"model.family=llama", "model.ffn=96"};
  const auto with = [&](std::string_view extra, std::vector<std::string> sets) {
    sets.insert(sets.begin(), llama.begin(), llama.end());
    const Job job =
        parsed(fmt::format("model.mlp_bias = false\n{}\n[batch]\nglobal = 8\n[run]\nsteps = 1\n", extra), sets);
    return std::pair(job.model.attention_bias, job.model.mlp_bias);
  };
  const std::string dims =
      "model.layers = 1\nmodel.hidden = 64\nmodel.heads = 4\nmodel.vocab = 9\nmodel.sequence = 8\n";
  EXPECT_EQ(with(dims, {}), std::pair(false, false));
  EXPECT_EQ(with(dims + "model.bias = true", {}), std::pair(true, false));  // the file's own exception holds
  EXPECT_EQ(with(dims, {"model.bias=true"}), std::pair(true, true));        // an option is over the file
  EXPECT_EQ(with(dims, {"model.bias=true", "model.attention_bias=false"}), std::pair(false, true));
}

TEST(Parse, ExplicitKeysOverrideThePreset) {
  const Job job =
      parsed("[model]\npreset = \"gpt2-124m\"\nhidden = 1536\ndropout = 0.1\n[batch]\nglobal = 1\n[run]\nsteps = 1\n",
             {"model.sequence=256"});
  EXPECT_EQ(job.model.hidden, 1536);
  EXPECT_EQ(job.model.head_dim, 128);  // derived after merging
  EXPECT_EQ(job.model.ffn, 6144);
  EXPECT_EQ(job.model.layers, 12);
  EXPECT_EQ(job.model.dropout, 0.1);
  EXPECT_EQ(job.model.sequence, 256);
  EXPECT_EQ(job.batch.sequence, 256);
}

TEST(Parse, OptionsAreTomlValuesOrBareStrings) {
  const Job job = parsed(
      small_file,
      {"optimizer.lr = 1e-3", "optimizer.betas=[0.8, 0.9]", "optimizer.schedule={shape=\"wsd\", decay=3}",
       "run.folder=2024-01-01", "schedule.recompute=full", "schedule.pipeline=\"gpipe\"", "run.save.every=5",
       "run.save={keep=7}", "batch.micro=2", "batch.micro=4", "mesh.levels=[2, \"*\"]",
       "mesh.level_names=[\"node\", \"system\"]", "run.machine=", "data.train=[{path=\"a\"},{path=\"b\",weight=2}]"});
  EXPECT_EQ(job.optimizer.lr, 1e-3);
  EXPECT_EQ(job.optimizer.beta1, 0.8);
  EXPECT_EQ(job.optimizer.schedule.shape, optim::Shape::wsd);
  EXPECT_EQ(job.optimizer.schedule.decay, 3);
  EXPECT_EQ(job.run.folder, "2024-01-01");
  EXPECT_EQ(job.schedule.recompute, Recompute::full);
  EXPECT_EQ(job.schedule.pipeline, Pipeline::gpipe);
  EXPECT_EQ(job.run.save.every, 5);
  EXPECT_EQ(job.run.save.keep, 7);
  EXPECT_EQ(job.batch.micro, 4);
  EXPECT_THAT(job.mesh.levels, ElementsAre(machine::Level{"node", 2}, machine::Level{"system", 0}));
  EXPECT_EQ(job.run.machine, "");
  ASSERT_EQ(job.data.train.size(), 2u);
  EXPECT_EQ(job.data.train[1].weight, 2);
}

TEST(Parse, PathsStartAtTheFileOrAtTheWorkingDirectory) {
  const std::string data = std::string(small_file) +
                           "[data]\ntrain = [{ path = \"../d/x\" }, { path = \"/abs/y\" }]\nvalidation = \"v\"\n"
                           "tokenizer = \"t.json\"\n";
  const Job in_file = parsed(data);
  EXPECT_EQ(in_file.data.train[0].path, "/d/x");
  EXPECT_EQ(in_file.data.train[1].path, "/abs/y");
  EXPECT_EQ(in_file.data.validation, "/jobs/v");
  EXPECT_EQ(in_file.data.tokenizer, "/jobs/t.json");
  const Job by_option = parsed(data, {"data.validation=v", "data.tokenizer=./sub/../t.json", "run.machine=m/own.toml"});
  EXPECT_EQ(by_option.data.validation, (fs::current_path() / "v").string());
  EXPECT_EQ(by_option.data.tokenizer, (fs::current_path() / "t.json").string());
  EXPECT_EQ(by_option.run.machine, (fs::current_path() / "m/own.toml").string());
  // Outputs stay as given.
  EXPECT_EQ(parsed(small_file, {"run.folder=out/a"}).run.folder, "out/a");
}

TEST(Parse, AHigherLayerDisplacesTheRivalsOfItsKeys) {
  const std::string levels = std::string(small_file) + "[placement]\ngradients = \"node\"\noptimizer = \"all\"\n";
  EXPECT_EQ(parsed(levels).placement.preset, "");
  EXPECT_EQ(parsed(levels).placement.weights, "none");
  const Job preset = parsed(levels, {"placement.preset=zero1"});
  EXPECT_EQ(preset.placement.preset, "zero1");
  EXPECT_EQ(preset.placement.gradients, "");
  const Job own = parsed(std::string(small_file) + "[placement]\npreset = \"hsdp\"\nlevel = \"package\"\n",
                         {"placement.optimizer=all"});
  EXPECT_EQ(own.placement.preset, "");
  EXPECT_EQ(own.placement.level, "");
  const Job split = parsed(std::string(small_file) + "[data]\nvalidation = \"v\"\n", {"data.split=[9, 1]"});
  EXPECT_EQ(split.data.validation, "");
  EXPECT_THAT(split.data.split, ElementsAre(9, 1));
  EXPECT_THAT(parsed(std::string(small_file), {"data.split=969, 30,1"}).data.split, ElementsAre(969, 30, 1));
  // A key that a higher layer made meaningless goes with it.
  const std::string cosine =
      std::string(small_file) + "[optimizer]\nschedule = { shape = \"wsd\", min_lr = 1e-5, decay = 4 }\n";
  const Job constant = parsed(cosine, {"optimizer.schedule.shape=constant"});
  EXPECT_EQ(constant.optimizer.schedule, optim::Schedule{});
  EXPECT_EQ(parsed(cosine, {"optimizer.schedule.shape=cosine"}).optimizer.schedule.min_lr, 1e-5);
}

TEST(Parse, ValuesOfLaterIssuesAreLegalNow) {
  const Job job = parsed(
      whole_file,
      {"schedule.pipeline=zb-v", "mesh.pipeline=4", "mesh.tensor=2", "placement.preset=zeropp",
       "placement.wires.weights=int4", "placement.wires.rounding=stochastic", "placement.wires.error_feedback=true",
       "placement.hops=[[\"package\"], [\"node\", \"system\"]]", "mesh.order=[\"data\", \"tensor\", \"pipeline\"]"});
  EXPECT_EQ(job.schedule.pipeline, Pipeline::zb_v);
  EXPECT_EQ(job.placement.wires[0].everywhere, Wire::int4);
  for (const HopPlan& plan : job.placement.hops) EXPECT_EQ(plan.size(), 2u);
  EXPECT_EQ(job.mesh.order[0], "data");
}

class Shows : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Shows, ParsesBackToAnEqualJob) {
  for (const std::string_view text : {whole_file, small_file}) {
    const bool other_model = !GetParam().empty() && GetParam()[0].starts_with("model.preset");
    if (other_model && text == small_file) continue;  // it has dimensions of its own
    const Job job = parsed(text, GetParam());
    const std::string shown = show(job);
    // From another folder: every path must have come out absolute.
    const Job again = parse(shown, "/elsewhere/merged.toml");
    EXPECT_TRUE(again == job) << shown;
    EXPECT_EQ(show(again), shown);
    EXPECT_EQ(digest(again), digest(job));
    EXPECT_EQ(to_json(again), to_json(job));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, Shows,
    testing::Values(
        std::vector<std::string>{},
        std::vector<std::string>{"optimizer.lr=0.1", "optimizer.betas=[0.0, 0.999999999999]",
                                 "optimizer.weight_decay=1e-300"},
        std::vector<std::string>{"optimizer.schedule={shape=\"wsd\", warmup=3, decay=0.25, min_lr=1e-6}"},
        std::vector<std::string>{"optimizer.schedule={shape=\"constant\"}"},
        std::vector<std::string>{"placement={preset=\"mics\", level=\"package\"}",
                                 "placement.wires.gradients={node=\"bf16\"}"},
        std::vector<std::string>{"placement={weights=\"package\", gradients=\"node\", optimizer=\"all\"}",
                                 "placement.wires={weights=\"int8\", int4_block=64}",
                                 "placement.hops={gradients=[[\"package\", \"node\"]], update=[[\"package\"]]}"},
        std::vector<std::string>{"placement.preset=ddp", "mesh.levels=[2, 4, 8, \"*\"]",
                                 "mesh.level_names=[\"die\", \"odd name\", \"node\", \"system\"]",
                                 "placement.wires.reduction={\"odd name\"=\"int4\"}"},
        std::vector<std::string>{"mesh.levels=[2, 4, 2]", "mesh.tensor=2"},
        std::vector<std::string>{"data.train=[{path=\"/q/\\\"quoted\\\\back\\u0009tab\", weight=0.3}, {path=\"ü\"}]",
                                 "data.split=[969, 30, 1]"},
        std::vector<std::string>{"model.preset=llama3.2-1b"},
        std::vector<std::string>{"model.preset=pythia-70m", "model.dropout=0.1"},
        std::vector<std::string>{"run.folder=true", "run.seed=9007199254740992", "run.machine=./mine.toml"}),
    [](const auto& tested) { return std::to_string(tested.index); });

TEST(Shows, EveryKeyIsShownOnceWhereItApplies) {
  const auto json = to_json(parsed(whole_file));
  for (const KeyDoc& key : keys()) {
    if (key.name == "model.bias") continue;
    std::string pointer = "/" + key.name;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    EXPECT_TRUE(json.contains(nlohmann::ordered_json::json_pointer(pointer))) << key.name;
  }
  EXPECT_EQ(json["model"]["layers"], 44);
  EXPECT_EQ(json["optimizer"]["schedule"]["warmup"], 0.01);
  EXPECT_TRUE(json["model"]["rope_scaling"]["factor"].is_null());
}

TEST(Shows, DigestTellsJobsApart) {
  EXPECT_EQ(digest(parsed(small_file)), digest(parsed(std::string(small_file) + "# a comment\n")));
  EXPECT_NE(digest(parsed(small_file)), digest(parsed(small_file, {"run.seed=1"})));
  EXPECT_NE(digest(parsed(small_file)), digest(parsed(small_file, {"optimizer.lr=3.0000000000000003e-4"})));
}

TEST(Keys, TableIsWholeAndInSections) {
  std::vector<std::string> sections;
  for (const KeyDoc& key : keys()) {
    EXPECT_FALSE(key.doc.empty() || key.type.empty() || key.fallback.empty()) << key.name;
    const std::string section = key.name.substr(0, key.name.find('.'));
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  EXPECT_THAT(sections,
              ElementsAre("model", "data", "batch", "mesh", "placement", "schedule", "precision", "optimizer", "run"));
  EXPECT_THAT(keys_markdown(), HasSubstr("| `schedule.warmup` | number | 0 |"));
}

// Hugging Face folders, as far as their dimensions go.
class From : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / fmt::format("strata-from-{}", ::getpid());
    fs::create_directories(folder_ / "model");
    std::ofstream(folder_ / "model" / "config.json")
        << R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 160,
               "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_act": "silu",
               "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "vocab_size": 211, "rope_theta": 10000.0,
               "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false})";
  }
  void TearDown() override { fs::remove_all(folder_); }
  Job load_from(std::string_view model, const std::vector<std::string>& sets = {}) const {
    return parse(fmt::format("[model]\n{}\n[batch]\nglobal = 2\n[run]\nsteps = 1\n", model), folder_ / "job.toml",
                 sets);
  }
  fs::path folder_;
};

TEST_F(From, DimensionsComeFromItAndKeysOverride) {
  const Job job = load_from("from = \"model\"\nsequence = 32");
  EXPECT_EQ(job.model_from, (folder_ / "model").string());
  EXPECT_EQ(job.model.family, model::Family::llama);
  EXPECT_EQ(job.model.kv_heads, 4);
  EXPECT_EQ(job.model.ffn, 160);
  EXPECT_EQ(job.model.norm_epsilon, 1e-6);
  EXPECT_EQ(job.model.sequence, 32);
  EXPECT_TRUE(parse(show(job), "/elsewhere/job.toml") == job);
}

TEST_F(From, WhatIsWrongIsSaid) {
  const auto message = [&](std::string_view model, const std::vector<std::string>& sets = {}) -> std::string {
    try {
      load_from(model, sets);
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(message("from = \"nowhere\""),
              HasSubstr("job.toml:2: model.from: " + (folder_ / "nowhere/config.json").string()));
  EXPECT_THAT(message("from = \"model\"\nfamily = \"gpt2\""), HasSubstr("job.toml:3: model.family"));
  EXPECT_THAT(message("from = \"model\"\npreset = \"gpt2-124m\""), HasSubstr("cannot be given together"));
  EXPECT_THAT(message("from = \"model\"", {"model.heads=5"}), HasSubstr("--set model.heads=5"));
  std::ofstream(folder_ / "model" / "config.json") << "{";
  EXPECT_THAT(message("from = \"model\""), HasSubstr("config.json"));
  // An option displaces the folder, which need not even be there then.
  EXPECT_EQ(load_from("from = \"gone\"", {"model.preset=gpt2-124m"}).model.layers, 12);
}

TEST_F(From, APresetFileOfOnesOwn) {
  std::ofstream(folder_ / "mine.toml")
      << "[model]\nfamily = \"gpt2\"\nlayers = 2\nhidden = 64\nheads = 4\nvocab = 99\nsequence = 16\n";
  const Job job = load_from("preset = \"./mine.toml\"\nlayers = 3");
  EXPECT_EQ(job.model.layers, 3);
  EXPECT_EQ(job.model.vocab, 99);
  EXPECT_EQ(job.model.preset, (folder_ / "mine.toml").string());

  const auto message = [&](std::string_view content) -> std::string {
    std::ofstream(folder_ / "bad.toml") << content;
    try {
      load_from("preset = \"bad.toml\"");
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(message("[model]\nlayer = 2\n"),
              HasSubstr("bad.toml:2: model.layer: unknown key (did you mean \"model.layers\"?)"));
  EXPECT_THAT(message("[model]\nfamily = \"gpt2\"\n[batch]\nglobal = 2\n"),
              HasSubstr("bad.toml:3: batch: a preset holds only [model]"));
  EXPECT_THAT(message("[model]\npreset = \"gpt2-124m\"\n"),
              HasSubstr("bad.toml:2: model.preset: a preset cannot build on another"));
  EXPECT_THAT(message("[model]\nfamily = \"gpt2\"\nlayers = 2\n"),
              HasSubstr("job.toml: [model] lacks hidden, heads, vocab, sequence"));
}

TEST_F(From, StrataHomeComesBeforeTheRest) {
  fs::create_directories(folder_ / "models");
  std::ofstream(folder_ / "models" / "house.toml")
      << "[model]\nfamily = \"gpt2\"\nlayers = 2\nhidden = 64\nheads = 4\nvocab = 99\nsequence = 16\n";
  std::ofstream(folder_ / "models" / "gpt2-124m.toml")
      << "[model]\nfamily = \"gpt2\"\nlayers = 1\nhidden = 64\nheads = 4\nvocab = 99\nsequence = 16\n";
  ASSERT_EQ(::setenv("STRATA_HOME", folder_.c_str(), 1), 0);
  const int64_t house = load_from("preset = \"house\"").model.vocab,
                shadowed = load_from("preset = \"gpt2-124m\"").model.layers,
                shipped = load_from("preset = \"gpt2-355m\"").model.layers;
  ::unsetenv("STRATA_HOME");
  EXPECT_EQ(house, 99);
  EXPECT_EQ(shadowed, 1);
  EXPECT_EQ(shipped, 24);  // what is not there is looked for further on
}

}  // namespace
}  // namespace strata::job
