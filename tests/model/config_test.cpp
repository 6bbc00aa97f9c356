#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "model/unit.h"
#include "support/models.h"
#include "support/scratch.h"

namespace strata::model {
namespace {

using test::error_of;
using test::tiny_gpt2;
using test::tiny_llama;
using test::tiny_neox;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Family, NamesGoBothWays) {
  for (const Family family : {Family::gpt2, Family::gpt_neox, Family::llama})
    EXPECT_EQ(family_of(name_of(family)), family);
  EXPECT_EQ(family_of("mistral"), std::nullopt);
  EXPECT_EQ(family_of(""), std::nullopt);
}

TEST(Config, RotaryDimsAreTruncated) {
  Config c = tiny_neox();
  c.head_dim = 96, c.rotary_fraction = 0.25;
  EXPECT_EQ(c.rotary_dims(), 24);
  c.head_dim = 80, c.rotary_fraction = 0.33;
  EXPECT_EQ(c.rotary_dims(), 26);
  EXPECT_EQ(tiny_llama().rotary_dims(), 10);
  EXPECT_EQ(tiny_gpt2().rotary_dims(), 0);
}

TEST(Config, ParameterCountIsThatOfTheUnits) {
  for (const Config& config : test::tiny_models()) {
    int64_t counted = 0;
    for (const Unit& unit : units(config))
      for (const Parameter& p : unit.parameters) counted += p.true_rows * (p.matrix() ? p.shape[1] : 1);
    EXPECT_EQ(parameter_count(config), counted) << name_of(config.family) << (config.tied ? " tied" : "");
  }
}

TEST(Config, ParameterCountsOfKnownModels) {
  Config c;
  c.family = Family::gpt2, c.layers = 12, c.hidden = 768, c.heads = c.kv_heads = 12, c.head_dim = 64, c.ffn = 3072;
  c.vocab = 50257, c.sequence = 1024, c.tied = true;
  EXPECT_EQ(parameter_count(c), 124439808);  // GPT-2 small, as transformers counts it
  c = Config{};
  c.family = Family::gpt_neox, c.layers = 44, c.hidden = 6144, c.heads = c.kv_heads = 64, c.head_dim = 96,
  c.ffn = 24576;
  c.vocab = 50432, c.sequence = 2048, c.rotary_fraction = 0.25;
  EXPECT_EQ(parameter_count(c), 20554567680);  // GPT-NeoX-20B
  c = Config{};
  c.family = Family::llama, c.layers = 32, c.hidden = 4096, c.heads = 32, c.kv_heads = 8, c.head_dim = 128,
  c.ffn = 14336;
  c.vocab = 128256, c.sequence = 8192, c.activation = Activation::swiglu, c.attention_bias = c.mlp_bias = false;
  EXPECT_EQ(parameter_count(c), 8030261248);  // Llama 3 8B
  for (Config known : {c}) EXPECT_NO_THROW(validate(known, "x"));
}

TEST(Validate, AcceptsTheTinyModels) {
  for (const Config& config : test::tiny_models()) EXPECT_NO_THROW(validate(config, "file.toml"));
}

struct Fault {
  Config config;
  std::function<void(Config&)> change;
  const char* message;
};

TEST(Validate, NamesWhatIsWrong) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const Config gpt2 = tiny_gpt2(), neox = tiny_neox(), llama = tiny_llama();
  const std::vector<Fault> faults = {
      {gpt2, [](Config& c) { c.layers = 0; }, "layers = 0; it must be from 1"},
      {gpt2, [](Config& c) { c.layers = -3; }, "layers = -3"},
      {gpt2, [](Config& c) { c.hidden = 0; }, "hidden = 0"},
      {gpt2, [](Config& c) { c.heads = 0; }, "heads = 0"},
      {gpt2, [](Config& c) { c.kv_heads = 0; }, "kv_heads = 0"},
      {gpt2, [](Config& c) { c.head_dim = 0; }, "head_dim = 0"},
      {gpt2, [](Config& c) { c.ffn = 0; }, "ffn = 0"},
      {gpt2, [](Config& c) { c.vocab = 0; }, "vocab = 0"},
      {gpt2, [](Config& c) { c.sequence = 0; }, "sequence = 0"},
      {gpt2, [](Config& c) { c.vocab = INT64_MAX; }, "vocab = 9223372036854775807"},
      {gpt2,
       [](Config& c) {
         c.heads = c.kv_heads = 1 << 14;
         c.head_dim = 1 << 14;
       },
       "heads x head_dim = 268435456"},
      {gpt2, [](Config& c) { c.hidden = 25; }, "they must make hidden = 25"},
      {gpt2, [](Config& c) { c.kv_heads = 1; }, "gpt2 has no grouped-query attention"},
      {gpt2, [](Config& c) { c.activation = Activation::swiglu; }, "activation = swiglu; gpt2 has GELU"},
      {gpt2, [](Config& c) { c.attention_bias = false; }, "attention_bias = false"},
      {gpt2, [](Config& c) { c.mlp_bias = false; }, "mlp_bias = false"},
      {gpt2, [](Config& c) { c.parallel_residual = true; }, "parallel_residual = true; only gpt_neox"},
      {gpt2, [](Config& c) { c.rope_scaling = RopeScaling{}; }, "gpt2 learns its positions"},
      {gpt2, [](Config& c) { c.dropout = 1; }, "dropout = 1"},
      {gpt2, [](Config& c) { c.dropout = -0.5; }, "dropout = -0.5"},
      {gpt2, [=](Config& c) { c.dropout = nan; }, "dropout = nan"},
      {gpt2, [](Config& c) { c.norm_epsilon = 0; }, "norm_epsilon = 0"},
      {gpt2, [=](Config& c) { c.init_std = infinity; }, "init_std = inf"},
      {neox, [](Config& c) { c.mlp_bias = false; }, "mlp_bias = false; gpt_neox always"},
      {neox, [](Config& c) { c.rotary_fraction = 0; }, "rotary_fraction = 0"},
      {neox, [](Config& c) { c.rotary_fraction = 1.5; }, "rotary_fraction = 1.5"},
      {neox, [](Config& c) { c.rotary_fraction = 0.125; }, "is 1 dims"},
      {neox, [](Config& c) { c.rotary_fraction = 0.4; }, "is 3 dims"},
      {neox, [](Config& c) { c.rotary_fraction = 0.01; }, "is 0 dims"},
      {neox, [](Config& c) { c.rotary_base = 0; }, "rotary_base = 0"},
      {llama, [](Config& c) { c.kv_heads = 3; }, "kv_heads = 3 does not divide heads = 4"},
      {llama, [](Config& c) { c.kv_heads = 8; }, "kv_heads = 8 does not divide heads = 4"},
      {llama, [](Config& c) { c.activation = Activation::gelu_tanh; }, "llama has swiglu"},
      {llama, [](Config& c) { c.rotary_fraction = 0.5; }, "llama turns whole heads"},
      {llama, [](Config& c) { c.head_dim = 7; }, "is 7 dims"},
      {llama, [](Config& c) { c.rope_scaling->factor = 0.5; }, "rope_scaling.factor = 0.5"},
      {llama, [](Config& c) { c.rope_scaling->high_freq_factor = 1; }, "low_freq_factor = 1 and high_freq_factor = 1"},
      {llama, [](Config& c) { c.rope_scaling->low_freq_factor = 0; }, "low_freq_factor = 0"},
      {llama, [](Config& c) { c.rope_scaling->original_sequence = 0; }, "rope_scaling.original_sequence = 0"},
  };
  for (const Fault& fault : faults) {
    Config config = fault.config;
    fault.change(config);
    const std::string message = error_of([&] { validate(config, "file.toml"); });
    EXPECT_THAT(message, StartsWith("file.toml: "));
    EXPECT_THAT(message, HasSubstr(fault.message));
  }
}

}  // namespace
}  // namespace strata::model
