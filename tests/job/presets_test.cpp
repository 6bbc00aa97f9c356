// Every file of models/, against the parameter counts that were published with the models.

#include <gtest/gtest.h>

#include <map>

#include "job/job.h"
#include "job/keys.h"

namespace strata::job {
namespace {

struct Published {
  int64_t parameters;
  double tolerance = 0;  ///< relative, where only a rounded count was published
};

const std::map<std::string, Published> published = {
    {"gpt2-124m", {124439808}},
    {"gpt2-355m", {354823168}},
    {"gpt2-774m", {774030080}},
    {"gpt2-1558m", {1557611200}},
    {"gpt-neox-20b", {20554567680}},
    {"pythia-70m", {70426624}},
    {"pythia-160m", {162322944}},
    {"pythia-410m", {405334016}},
    {"pythia-1b", {1011781632}},
    {"pythia-1.4b", {1414647808}},
    {"pythia-2.8b", {2775208960}},
    {"pythia-6.9b", {6857302016}},
    {"pythia-12b", {11846072320}},
    {"llama-7b", {6738415616}},
    {"llama-13b", {13015864320}},
    {"llama-30b", {32528943616}},
    {"llama-65b", {65285660672}},
    {"llama2-70b", {68976648192}},
    {"llama3-8b", {8030261248}},
    {"llama3-70b", {70553706496}},
    {"llama3.2-1b", {1235814400}},
    {"gpt-22b", {22'000'000'000, 0.01}},
    {"gpt-175b", {175'000'000'000, 0.01}},
    {"gpt-1t", {1'008'000'000'000, 0.001}},
    {"quickstart", {4'000'000, 0.25}},
};

TEST(Presets, EachHasItsPublishedCountAndNoneIsUntested) {
  for (const auto& [name, expected] : published) {
    const int64_t count = model::parameter_count(load_preset(name));
    EXPECT_NEAR(static_cast<double>(count), static_cast<double>(expected.parameters),
                expected.tolerance * static_cast<double>(expected.parameters))
        << name;
  }
  for (const std::string& name : shipped_names("models")) EXPECT_TRUE(published.contains(name)) << name;
}

// P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), Narayanan et al. 2021, is exact but for the final norm (2 h).
TEST(Presets, GptSizesFollowTheUsualFormula) {
  for (const char* name : {"gpt-22b", "gpt-175b", "gpt-1t", "gpt2-124m", "gpt2-1558m"}) {
    const model::Config c = load_preset(name);
    const int64_t formula =
        12 * c.layers * c.hidden * c.hidden + 13 * c.layers * c.hidden + (c.vocab + c.sequence) * c.hidden;
    EXPECT_EQ(model::parameter_count(c), formula + 2 * c.hidden) << name;
  }
}

TEST(Presets, DetailsThatCountsDoNotShow) {
  EXPECT_EQ(load_preset("gpt-neox-20b").activation, model::Activation::gelu_tanh);
  EXPECT_EQ(load_preset("gpt-neox-20b").rotary_dims(), 24);
  EXPECT_EQ(load_preset("pythia-12b").activation, model::Activation::gelu_exact);
  EXPECT_EQ(load_preset("pythia-1b").head_dim, 256);
  EXPECT_EQ(load_preset("gpt-1t").heads, 200);
  EXPECT_EQ(load_preset("llama-7b").norm_epsilon, 1e-6);
  EXPECT_EQ(load_preset("llama3-8b").rotary_base, 500000);
  EXPECT_FALSE(load_preset("llama3-8b").rope_scaling.has_value());
  ASSERT_TRUE(load_preset("llama3.2-1b").rope_scaling.has_value());
  EXPECT_EQ(load_preset("llama3.2-1b").rope_scaling->factor, 32);
  EXPECT_TRUE(load_preset("llama3.2-1b").tied);
  EXPECT_EQ(load_preset("gpt2-124m").preset, "gpt2-124m");
}

TEST(Presets, NamesDoNotLeadOutOfTheFolder) {
  EXPECT_TRUE(find_shipped("models", "../models/gpt2-124m").empty());
  EXPECT_TRUE(find_shipped("models", "").empty());
  EXPECT_FALSE(find_shipped("models", "gpt2-124m").empty());
}

}  // namespace
}  // namespace strata::job
