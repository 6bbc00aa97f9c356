#include "model/hf_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/error.h"
#include "support/models.h"

namespace strata::model {
namespace {

using Layout = HfSlice::Layout;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

std::vector<std::string> names_of(const Config& config, size_t unit) {
  std::vector<std::string> names;
  const std::vector<Unit> all = units(config);
  for (const Parameter& p : all.at(unit).parameters)
    for (const HfSlice& slice : hf_slices(config, all[unit], p)) names.push_back(slice.name);
  return names;
}

TEST(HfNames, Gpt2) {
  const Config config = test::tiny_gpt2();
  EXPECT_THAT(names_of(config, 0), ElementsAre("transformer.wte.weight", "transformer.wpe.weight"));
  EXPECT_THAT(names_of(config, 2), ElementsAre("transformer.h.1.ln_1.weight", "transformer.h.1.ln_1.bias",
                                               "transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_attn.bias",
                                               "transformer.h.1.attn.c_proj.weight", "transformer.h.1.attn.c_proj.bias",
                                               "transformer.h.1.ln_2.weight", "transformer.h.1.ln_2.bias",
                                               "transformer.h.1.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.bias",
                                               "transformer.h.1.mlp.c_proj.weight", "transformer.h.1.mlp.c_proj.bias"));
  EXPECT_THAT(names_of(config, 3), ElementsAre("transformer.ln_f.weight", "transformer.ln_f.bias"));
  Config untied = config;
  untied.tied = false;
  EXPECT_THAT(names_of(untied, 3), ElementsAre("transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"));
}

TEST(HfNames, GptNeox) {
  const Config config = test::tiny_neox();
  EXPECT_THAT(names_of(config, 0), ElementsAre("gpt_neox.embed_in.weight"));
  EXPECT_THAT(
      names_of(config, 1),
      ElementsAre("gpt_neox.layers.0.input_layernorm.weight", "gpt_neox.layers.0.input_layernorm.bias",
                  "gpt_neox.layers.0.attention.query_key_value.weight",
                  "gpt_neox.layers.0.attention.query_key_value.bias", "gpt_neox.layers.0.attention.dense.weight",
                  "gpt_neox.layers.0.attention.dense.bias", "gpt_neox.layers.0.post_attention_layernorm.weight",
                  "gpt_neox.layers.0.post_attention_layernorm.bias", "gpt_neox.layers.0.mlp.dense_h_to_4h.weight",
                  "gpt_neox.layers.0.mlp.dense_h_to_4h.bias", "gpt_neox.layers.0.mlp.dense_4h_to_h.weight",
                  "gpt_neox.layers.0.mlp.dense_4h_to_h.bias"));
  EXPECT_THAT(names_of(config, 3),
              ElementsAre("gpt_neox.final_layer_norm.weight", "gpt_neox.final_layer_norm.bias", "embed_out.weight"));
}

TEST(HfNames, Llama) {
  Config config = test::tiny_llama();
  EXPECT_THAT(names_of(config, 0), ElementsAre("model.embed_tokens.weight"));
  EXPECT_THAT(names_of(config, 2),
              ElementsAre("model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.q_proj.weight",
                          "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight",
                          "model.layers.1.self_attn.o_proj.weight", "model.layers.1.post_attention_layernorm.weight",
                          "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
                          "model.layers.1.mlp.down_proj.weight"));
  EXPECT_THAT(names_of(config, 3), ElementsAre("model.norm.weight", "lm_head.weight"));
  config.attention_bias = config.mlp_bias = true;
  EXPECT_THAT(names_of(config, 1),
              IsSupersetOf({"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_proj.bias",
                            "model.layers.0.self_attn.v_proj.bias", "model.layers.0.self_attn.o_proj.bias",
                            "model.layers.0.mlp.gate_proj.bias", "model.layers.0.mlp.up_proj.bias",
                            "model.layers.0.mlp.down_proj.bias"}));
}

TEST(HfNames, SlicesCoverEachParameterOnceAndNamesAreUnique) {
  for (const Config& config : test::tiny_models()) {
    std::set<std::string> names;
    int64_t elements = 0;
    for (const Unit& unit : units(config)) {
      for (const Parameter& p : unit.parameters) {
        int64_t row = 0;
        for (const HfSlice& slice : hf_slices(config, unit, p)) {
          EXPECT_TRUE(names.insert(slice.name).second) << slice.name;
          EXPECT_EQ(slice.row_begin, row) << slice.name;
          EXPECT_EQ(slice.shape.elements(), slice.rows * (p.matrix() ? p.shape[1] : 1)) << slice.name;
          EXPECT_EQ(slice.shape.rank, p.shape.rank);
          if (p.matrix()) {
            EXPECT_EQ(slice.shape[slice.layout == Layout::transposed ? 0 : 1], p.shape[1]) << slice.name;
          }
          row += slice.rows;
          elements += slice.shape.elements();
        }
        EXPECT_EQ(row, p.true_rows) << unit.name << "." << p.name;
      }
    }
    EXPECT_EQ(elements, parameter_count(config));
  }
}

struct Fixture {
  explicit Fixture(Config c, size_t unit_index, const char* parameter_name)
      : config(std::move(c)), all(units(config)), unit(all.at(unit_index)), parameter(unit.parameter(parameter_name)) {
    values.resize(static_cast<size_t>(parameter.shape.elements()));
    std::iota(values.begin(), values.end(), 1.0f);
    slices = hf_slices(config, unit, parameter);
  }
  float ours(int64_t row, int64_t column = 0) const {
    return values.at(static_cast<size_t>(row * (parameter.matrix() ? parameter.shape[1] : 1) + column));
  }
  std::vector<float> tensor(size_t slice) const {
    std::vector<float> out(static_cast<size_t>(slices[slice].shape.elements()));
    to_hf(config, parameter, slices[slice], values, out);
    return out;
  }
  Config config;
  std::vector<Unit> all;
  const Unit& unit;
  const Parameter& parameter;
  std::vector<float> values;
  std::vector<HfSlice> slices;
};

TEST(HfLayout, Gpt2MatricesAreTransposed) {
  const Fixture f(test::tiny_gpt2(), 1, "attention.qkv.weight");  // [72, 24]
  ASSERT_EQ(f.slices.size(), 1u);
  EXPECT_EQ(f.slices[0].shape, (ops::Shape{24, 72}));
  const std::vector<float> theirs = f.tensor(0);
  for (int64_t out = 0; out < 72; ++out)
    for (int64_t in = 0; in < 24; ++in) ASSERT_EQ(theirs[static_cast<size_t>(in * 72 + out)], f.ours(out, in));
}

TEST(HfLayout, Gpt2BiasesAndTablesAreNot) {
  const Fixture bias(test::tiny_gpt2(), 1, "attention.qkv.bias");
  EXPECT_EQ(bias.tensor(0), bias.values);
  const Fixture positions(test::tiny_gpt2(), 0, "positions");
  EXPECT_EQ(positions.slices[0].shape, (ops::Shape{19, 24}));
  EXPECT_EQ(positions.tensor(0), positions.values);
}

TEST(HfLayout, GptNeoxQkvIsHeadByHead) {
  const Config config = test::tiny_neox();  // 3 heads of 8
  const Fixture weight(config, 1, "attention.qkv.weight"), bias(config, 1, "attention.qkv.bias");
  const std::vector<float> w = weight.tensor(0), b = bias.tensor(0);
  for (int64_t head = 0; head < 3; ++head)
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t dim = 0; dim < 8; ++dim) {
        const int64_t theirs = head * 24 + part * 8 + dim, ours = part * 24 + head * 8 + dim;
        ASSERT_EQ(b[static_cast<size_t>(theirs)], bias.ours(ours));
        for (int64_t in = 0; in < 24; ++in) ASSERT_EQ(w[static_cast<size_t>(theirs * 24 + in)], weight.ours(ours, in));
      }
}

TEST(HfLayout, LlamaQkvAndGateUpAreRanges) {
  const Fixture qkv(test::tiny_llama(), 1, "attention.qkv.weight");  // 40 + 20 + 20 rows
  ASSERT_EQ(qkv.slices.size(), 3u);
  EXPECT_EQ(qkv.slices[0].shape, (ops::Shape{40, 24}));
  EXPECT_EQ(qkv.slices[1].shape, (ops::Shape{20, 24}));
  EXPECT_EQ(qkv.tensor(0).front(), qkv.ours(0));
  EXPECT_EQ(qkv.tensor(1).front(), qkv.ours(40));
  EXPECT_EQ(qkv.tensor(2).front(), qkv.ours(60));
  EXPECT_EQ(qkv.tensor(2).back(), qkv.ours(79, 23));
  const Fixture up(test::tiny_llama(), 1, "mlp.up.weight");
  ASSERT_EQ(up.slices.size(), 2u);
  EXPECT_EQ(up.slices[0].name, "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(up.tensor(1).front(), up.ours(56));
}

TEST(HfLayout, PaddingRowsOfTheVocabularyStayOut) {
  const Fixture table(test::tiny_gpt2(), 0, "table");
  EXPECT_EQ(table.parameter.shape[0], 128);
  EXPECT_EQ(table.slices[0].shape, (ops::Shape{37, 24}));
  EXPECT_EQ(table.tensor(0).back(), table.ours(36, 23));
}

TEST(HfLayout, ThereAndBack) {
  for (const Config& config : test::tiny_models()) {
    for (const Unit& unit : units(config)) {
      for (const Parameter& p : unit.parameters) {
        std::vector<float> values(static_cast<size_t>(p.shape.elements())), back(values.size(), -1.0f);
        std::iota(values.begin(), values.end(), 1.0f);
        for (const HfSlice& slice : hf_slices(config, unit, p)) {
          std::vector<float> tensor(static_cast<size_t>(slice.shape.elements()));
          to_hf(config, p, slice, values, tensor);
          from_hf(config, p, slice, tensor, back);
        }
        const auto true_elements = static_cast<size_t>(p.true_rows * (p.matrix() ? p.shape[1] : 1));
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(back[i], i < true_elements ? values[i] : -1.0f) << unit.name << "." << p.name << " " << i;
      }
    }
  }
}

TEST(HfBuffers, AreToldFromParameters) {
  using enum Family;
  for (const char* name : {"h.0.attn.bias", "h.11.attn.masked_bias"}) EXPECT_TRUE(hf_is_buffer(gpt2, name)) << name;
  for (const char* name : {"layers.0.attention.bias", "layers.43.attention.masked_bias",
                           "layers.2.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq"})
    EXPECT_TRUE(hf_is_buffer(gpt_neox, name)) << name;
  for (const char* name : {"layers.0.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"})
    EXPECT_TRUE(hf_is_buffer(llama, name)) << name;

  for (const char* name : {"h.0.attn.c_attn.bias", "h..attn.bias", "h.x.attn.bias", "h.0attn.bias", "h.0", "h.",
                           "attn.bias", "rotary_emb.inv_freq", "h.0.attn.bias.x", ""})
    EXPECT_FALSE(hf_is_buffer(gpt2, name)) << name;
  EXPECT_FALSE(hf_is_buffer(gpt_neox, "layers.0.attention.dense.bias"));
  EXPECT_FALSE(hf_is_buffer(llama, "layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(hf_is_buffer(llama, "layers.0.attention.bias"));
}

}  // namespace
}  // namespace strata::model
