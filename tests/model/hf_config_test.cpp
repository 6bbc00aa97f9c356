#include "model/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/atomic_file.h"
#include "support/models.h"
#include "support/scratch.h"

namespace strata::model {
namespace {

using Json = nlohmann::json;
using test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// As transformers 4 and 5 write them, shortened to what has a bearing.
Json gpt2() {
  return Json::parse(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
    "attn_pdrop": 0.0, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "bos_token_id": 50256, "eos_token_id": 50256,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_inner": null,
    "n_layer": 12, "n_positions": 1024, "reorder_and_upcast_attn": false, "scale_attn_by_inverse_layer_idx": false,
    "scale_attn_weights": true, "summary_type": "cls_index", "torch_dtype": "float32", "transformers_version": "4.57.1",
    "use_cache": true, "vocab_size": 50257, "task_specific_params": {"text-generation": {"do_sample": true}}})");
}
Json neox4() {
  return Json::parse(R"({"model_type": "gpt_neox", "attention_bias": true, "attention_dropout": 0.0, "bos_token_id": 0,
    "classifier_dropout": 0.1, "eos_token_id": 0, "hidden_act": "gelu", "hidden_dropout": 0.0, "hidden_size": 6144,
    "initializer_range": 0.02, "intermediate_size": 24576, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
    "num_attention_heads": 64, "num_hidden_layers": 44, "rope_scaling": null, "rotary_emb_base": 10000, "rotary_pct": 0.25,
    "tie_word_embeddings": false, "torch_dtype": "float16", "use_parallel_residual": true, "vocab_size": 50432})");
}
Json neox5() {
  Json json = neox4();
  for (const char* key : {"rope_scaling", "rotary_emb_base", "rotary_pct", "torch_dtype"}) json.erase(key);
  json["dtype"] = "float16";
  json["rope_parameters"] = {{"partial_rotary_factor", 0.25}, {"rope_theta", 10000.0}, {"rope_type", "default"}};
  return json;
}
Json llama4() {
  return Json::parse(
      R"({"model_type": "llama", "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})");
}
Json llama5() {
  Json json = llama4();
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_theta"] = json["rope_theta"];
  json.erase("rope_scaling");
  json.erase("rope_theta");
  return json;
}

Config read(const Json& json) { return from_hf_config(json.dump(), "config.json"); }

Json with(Json json, const std::string& key, Json value) {
  json[Json::json_pointer("/" + key)] = std::move(value);
  return json;
}
Json without(Json json, const std::string& key) {
  json.erase(key);
  return json;
}

std::string refusal(const Json& json) {
  const std::string message = error_of([&] { read(json); });
  EXPECT_THAT(message, StartsWith("config.json: "));
  return message;
}

TEST(FromHf, Gpt2) {
  Config expected;
  expected.family = Family::gpt2;
  expected.layers = 12, expected.hidden = 768, expected.heads = expected.kv_heads = 12, expected.head_dim = 64;
  expected.ffn = 3072, expected.vocab = 50257, expected.sequence = 1024, expected.activation = Activation::gelu_tanh;
  expected.tied = true, expected.dropout = 0.1;
  EXPECT_EQ(read(gpt2()), expected);

  expected.ffn = 1000;
  EXPECT_EQ(read(with(gpt2(), "n_inner", 1000)), expected);
  expected.ffn = 3072, expected.tied = false;
  EXPECT_EQ(read(with(gpt2(), "tie_word_embeddings", false)), expected);
}

TEST(FromHf, GptNeoxAsVersions4And5SpellIt) {
  Config expected;
  expected.family = Family::gpt_neox;
  expected.layers = 44, expected.hidden = 6144, expected.heads = expected.kv_heads = 64, expected.head_dim = 96;
  expected.ffn = 24576, expected.vocab = 50432, expected.sequence = 2048, expected.activation = Activation::gelu_exact;
  expected.rotary_fraction = 0.25, expected.parallel_residual = true;
  EXPECT_EQ(read(neox4()), expected);
  EXPECT_EQ(read(neox5()), expected);
  EXPECT_EQ(expected.rotary_dims(), 24);

  expected.rotary_fraction = 0.5, expected.rotary_base = 20000, expected.parallel_residual = false;
  EXPECT_EQ(
      read(with(with(with(neox4(), "rotary_pct", 0.5), "rotary_emb_base", 20000), "use_parallel_residual", false)),
      expected);
  EXPECT_EQ(
      read(with(with(with(neox5(), "rope_parameters/partial_rotary_factor", 0.5), "rope_parameters/rope_theta", 20000),
                "use_parallel_residual", false)),
      expected);
}

TEST(FromHf, LlamaAsVersions4And5SpellIt) {
  Config expected;
  expected.family = Family::llama;
  expected.layers = 32, expected.hidden = 4096, expected.heads = 32, expected.kv_heads = 8, expected.head_dim = 128;
  expected.ffn = 14336, expected.vocab = 128256, expected.sequence = 131072, expected.activation = Activation::swiglu;
  expected.attention_bias = expected.mlp_bias = false, expected.rotary_base = 500000;
  expected.rope_scaling = RopeScaling{8, 1, 4, 8192};
  EXPECT_EQ(read(llama4()), expected);
  EXPECT_EQ(read(llama5()), expected);

  // The older name of rope_type.
  Json older = llama4();
  older["rope_scaling"]["type"] = older["rope_scaling"]["rope_type"];
  EXPECT_EQ(read(older), expected);
  older["rope_scaling"].erase("rope_type");
  EXPECT_EQ(read(older), expected);
}

TEST(FromHf, AbsentKeysMeanWhatTheyMeanInTransformers) {
  Config config = read(without(without(llama4(), "num_key_value_heads"), "head_dim"));
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_EQ(config.head_dim, 128);
  config = read(with(with(llama4(), "num_key_value_heads", nullptr), "head_dim", nullptr));
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(read(with(llama4(), "head_dim", 64)).head_dim, 64);

  EXPECT_TRUE(read(without(gpt2(), "tie_word_embeddings")).tied);
  EXPECT_FALSE(read(without(neox4(), "tie_word_embeddings")).tied);
  EXPECT_FALSE(read(without(llama4(), "tie_word_embeddings")).tied);

  EXPECT_FALSE(read(without(llama4(), "attention_bias")).attention_bias);
  EXPECT_FALSE(read(without(llama4(), "mlp_bias")).mlp_bias);
  EXPECT_TRUE(read(without(neox4(), "attention_bias")).attention_bias);
  EXPECT_FALSE(read(with(neox4(), "attention_bias", false)).attention_bias);
  EXPECT_TRUE(read(with(with(llama4(), "attention_bias", true), "mlp_bias", true)).mlp_bias);

  EXPECT_EQ(read(without(without(neox4(), "rotary_pct"), "rotary_emb_base")).rotary_fraction, 0.25);
  EXPECT_EQ(read(without(neox5(), "rope_parameters")).rotary_fraction, 0.25);
  const Config plain = read(without(without(llama4(), "rope_scaling"), "rope_theta"));
  EXPECT_EQ(plain.rotary_base, 10000);
  EXPECT_EQ(plain.rotary_fraction, 1);
  EXPECT_FALSE(plain.rope_scaling.has_value());
  EXPECT_EQ(read(without(llama4(), "rms_norm_eps")).norm_epsilon, 1e-6);
  EXPECT_EQ(read(without(neox4(), "layer_norm_eps")).norm_epsilon, 1e-5);
  EXPECT_TRUE(read(without(neox4(), "use_parallel_residual")).parallel_residual);
  EXPECT_EQ(read(without(without(gpt2(), "embd_pdrop"), "resid_pdrop")).dropout, 0.1);
  EXPECT_EQ(read(without(neox4(), "hidden_dropout")).dropout, 0);
}

TEST(FromHf, RopeThetaInEitherPlace) {
  EXPECT_EQ(read(with(llama5(), "rope_theta", 500000)).rotary_base, 500000);
  EXPECT_EQ(read(with(with(llama5(), "rope_parameters/rope_theta", nullptr), "rope_theta", 70000)).rotary_base, 70000);
  EXPECT_EQ(read(with(llama4(), "rope_scaling/rope_theta", 500000.0)).rotary_base, 500000);
  EXPECT_EQ(read(with(neox5(), "rotary_emb_base", 10000)).rotary_base, 10000);

  EXPECT_THAT(refusal(with(llama5(), "rope_theta", 10000)),
              HasSubstr("rope_parameters.rope_theta = 500000, but rope_theta = 10000"));
  EXPECT_THAT(refusal(with(neox5(), "rotary_emb_base", 500)),
              HasSubstr("rope_parameters.rope_theta = 10000, but rotary_emb_base = 500"));
  EXPECT_THAT(refusal(with(neox5(), "rotary_pct", 1)),
              HasSubstr("rope_parameters.partial_rotary_factor = 0.25, but rotary_pct = 1"));
}

TEST(FromHf, BothSpellingsTogetherMustAgree) {
  Json both = llama4();
  both["rope_parameters"] = llama5()["rope_parameters"];
  EXPECT_EQ(read(both), read(llama4()));
  EXPECT_THAT(refusal(with(both, "rope_scaling/factor", 4.0)),
              HasSubstr("rope_parameters.factor = 8, but rope_scaling.factor = 4"));
  EXPECT_THAT(refusal(with(both, "rope_parameters/rope_type", "default")),
              HasSubstr("rope_parameters.rope_type = \"default\", but rope_scaling.rope_type = \"llama3\""));
}

TEST(FromHf, Activations) {
  for (const char* name : {"gelu", "gelu_python"})
    EXPECT_EQ(read(with(neox4(), "hidden_act", name)).activation, Activation::gelu_exact) << name;
  for (const char* name : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"}) {
    EXPECT_EQ(read(with(neox4(), "hidden_act", name)).activation, Activation::gelu_tanh) << name;
    EXPECT_EQ(read(with(gpt2(), "activation_function", name)).activation, Activation::gelu_tanh) << name;
  }
  EXPECT_EQ(read(with(gpt2(), "activation_function", "gelu")).activation, Activation::gelu_exact);
  EXPECT_EQ(read(with(llama4(), "hidden_act", "swish")).activation, Activation::swiglu);
  EXPECT_THAT(refusal(with(gpt2(), "activation_function", "relu")),
              HasSubstr("activation_function = \"relu\" is not supported"));
  EXPECT_THAT(refusal(with(neox4(), "hidden_act", "quick_gelu")), HasSubstr("hidden_act = \"quick_gelu\""));
  EXPECT_THAT(refusal(with(llama4(), "hidden_act", "gelu")), HasSubstr("hidden_act = \"gelu\""));
}

TEST(FromHf, Dropout) {
  EXPECT_EQ(read(with(with(gpt2(), "embd_pdrop", 0.25), "resid_pdrop", 0.25)).dropout, 0.25);
  EXPECT_EQ(read(with(neox4(), "hidden_dropout", 0.25)).dropout, 0.25);
  EXPECT_THAT(refusal(with(gpt2(), "embd_pdrop", 0.0)), HasSubstr("embd_pdrop = 0 and resid_pdrop = 0.1"));
  EXPECT_THAT(refusal(without(with(gpt2(), "embd_pdrop", 0.2), "resid_pdrop")),
              HasSubstr("resid_pdrop = 0.1 (0.1 where absent)"));
  // The published GPT-2 has it: such a model generates and is exported; training refuses it (train/trainer.h).
  EXPECT_EQ(read(with(gpt2(), "attn_pdrop", 0.25)).attention_dropout, 0.25);
  EXPECT_EQ(read(without(gpt2(), "attn_pdrop")).attention_dropout, 0.1);  // what its absence means
  EXPECT_EQ(read(with(neox4(), "attention_dropout", 0.5)).attention_dropout, 0.5);
  EXPECT_EQ(read(with(llama4(), "attention_dropout", 0.5)).attention_dropout, 0.5);
  EXPECT_THAT(refusal(with(llama4(), "attention_dropout", 1.5)), HasSubstr("attention_dropout = 1.5"));
  EXPECT_THAT(refusal(with(neox4(), "hidden_dropout", 1.0)), HasSubstr("dropout = 1"));
}

TEST(FromHf, RefusesWhatIsNotSupportedByName) {
  EXPECT_THAT(refusal(with(gpt2(), "model_type", "mistral")),
              HasSubstr("model_type = \"mistral\" is not supported: gpt2, gpt_neox and llama are"));
  EXPECT_THAT(refusal(without(gpt2(), "model_type")), HasSubstr("model_type is missing"));
  for (const char* type : {"yarn", "linear", "dynamic", "longrope", "su", "mrope"}) {
    EXPECT_THAT(refusal(with(llama4(), "rope_scaling/rope_type", type)),
                HasSubstr("rope_scaling.rope_type = \"" + std::string(type)));
    EXPECT_THAT(refusal(with(neox5(), "rope_parameters/rope_type", type)), HasSubstr("rope_parameters.rope_type = "));
  }
  EXPECT_THAT(refusal(with(without(llama4(), "rope_scaling"), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})),
              HasSubstr("rope_scaling.type = \"linear\" is not supported"));
  EXPECT_THAT(refusal(with(neox5(), "rope_parameters", {{"full_attention", {{"rope_type", "default"}}}})),
              HasSubstr("rope_parameters.full_attention is not supported"));
  EXPECT_THAT(refusal(with(llama4(), "rope_scaling/partial_rotary_factor", 0.5)), HasSubstr("rotary_fraction = 0.5"));

  const std::pair<const char*, Json> general[] = {{"quantization_config", {{"quant_method", "gptq"}}},
                                                  {"attention_chunk_size", 8192},
                                                  {"attn_logit_softcapping", 50.0},
                                                  {"final_logit_softcapping", 30.0},
                                                  {"num_local_experts", 8},
                                                  {"num_experts", 8},
                                                  {"pruned_heads", {{"0", {1}}}},
                                                  {"add_cross_attention", true},
                                                  {"is_encoder_decoder", true},
                                                  {"use_qk_norm", true},
                                                  {"qk_layernorm", true},
                                                  {"sliding_window", 4096},
                                                  {"use_sliding_window", true},
                                                  {"logit_scale", 0.5},
                                                  {"residual_multiplier", 0.22},
                                                  {"attention_multiplier", 0.1},
                                                  {"layer_types", {"full_attention", "sliding_attention"}},
                                                  {"auto_map", {{"AutoModelForCausalLM", "modeling.X"}}}};
  for (const Json& base : {gpt2(), neox4(), neox5(), llama4(), llama5()})
    for (const auto& [key, value] : general)
      EXPECT_THAT(refusal(with(base, key, value)), AllOf(HasSubstr(key), HasSubstr("not supported"))) << key;

  EXPECT_THAT(refusal(with(gpt2(), "scale_attn_weights", false)), HasSubstr("scale_attn_weights = false"));
  EXPECT_THAT(refusal(with(gpt2(), "scale_attn_by_inverse_layer_idx", true)),
              HasSubstr("scale_attn_by_inverse_layer_idx = true"));
}

TEST(FromHf, IgnoresWhatHasNoBearing) {
  const std::pair<const char*, Json> harmless[] = {{"quantization_config", nullptr},
                                                   {"sliding_window", nullptr},
                                                   {"pruned_heads", Json::object()},
                                                   {"add_cross_attention", false},
                                                   {"is_encoder_decoder", false},
                                                   {"use_cache", false},
                                                   {"output_attentions", true},
                                                   {"transformers_version", "9"},
                                                   {"architectures", {"Whatever"}},
                                                   {"_name_or_path", "x"},
                                                   {"tokenizer_class", nullptr},
                                                   {"pretraining_tp", 4},
                                                   {"is_decoder", true},
                                                   {"chunk_size_feed_forward", 8},
                                                   {"layer_types", {"full_attention"}},
                                                   {"auto_map", {{"AutoTokenizer", "x.Y"}}},
                                                   {"logit_scale", 1.0},
                                                   {"a key of the future", {1, 2, {{"x", 1}}}}};
  for (const Json& base : {gpt2(), neox4(), neox5(), llama4(), llama5()}) {
    const Config expected = read(base);
    for (const auto& [key, value] : harmless) EXPECT_EQ(read(with(base, key, value)), expected) << key;
  }
  EXPECT_EQ(read(with(gpt2(), "reorder_and_upcast_attn", true)), read(gpt2()));
  EXPECT_EQ(read(with(with(llama4(), "sliding_window", 4096), "use_sliding_window", false)), read(llama4()));
}

TEST(FromHf, RefusesMissingMistypedAndImpossibleDimensions) {
  for (const char* key : {"n_layer", "n_embd", "n_head", "n_positions", "vocab_size"})
    EXPECT_THAT(refusal(without(gpt2(), key)), HasSubstr(std::string(key) + " is missing; a gpt2 config.json has it"));
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings",
                          "intermediate_size", "vocab_size"}) {
    EXPECT_THAT(refusal(without(neox4(), key)), HasSubstr(std::string(key) + " is missing; a gpt_neox"));
    for (const Json& value : {Json(64.0), Json("64"), Json(true), Json::array({64}), Json(UINT64_MAX)})
      EXPECT_THAT(refusal(with(llama4(), key, value)), HasSubstr(std::string(key) + " is ")) << value;
    for (const int64_t value : {int64_t{0}, int64_t{-4}, INT64_MIN})
      EXPECT_THAT(refusal(with(llama4(), key, value)), HasSubstr(std::string(key) + " = " + std::to_string(value)));
    refusal(with(llama4(), key, INT64_MAX));
    refusal(with(neox4(), key, INT64_MAX));
  }
  refusal(with(gpt2(), "n_embd", INT64_MAX));
  EXPECT_THAT(refusal(with(gpt2(), "n_head", 7)), HasSubstr("7 heads do not divide a hidden size of 768"));
  EXPECT_THAT(refusal(with(llama4(), "num_key_value_heads", 5)), HasSubstr("kv_heads = 5 does not divide heads = 32"));
  EXPECT_THAT(refusal(with(llama4(), "rms_norm_eps", "1e-5")),
              HasSubstr("rms_norm_eps is \"1e-5\", expected a number"));
  EXPECT_THAT(refusal(with(llama4(), "attention_bias", 1)), HasSubstr("attention_bias is 1, expected true or false"));
  EXPECT_THAT(refusal(with(llama4(), "rope_scaling", "llama3")),
              HasSubstr("rope_scaling is \"llama3\", expected an object"));
  EXPECT_THAT(refusal(with(llama4(), "rope_scaling/rope_type", 3)), HasSubstr("rope_scaling.rope_type is 3"));
  EXPECT_THAT(refusal(with(llama4(), "layer_types", "full_attention")), HasSubstr("layer_types is \"full_attention\""));
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    Json json = llama4();
    json["rope_scaling"].erase(key);
    EXPECT_THAT(refusal(json), HasSubstr("rope_scaling.rope_type is llama3, which needs " + std::string(key)));
  }
  Json json = llama4();
  json["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(read(json).rope_scaling->original_sequence, 131072);  // as transformers 5 completes it
  EXPECT_THAT(refusal(with(llama4(), "rope_scaling/original_max_position_embeddings", 0.5)),
              HasSubstr("original_max_position_embeddings = 0.5"));
}

TEST(FromHf, RefusesForeignFiles) {
  EXPECT_THAT(error_of([] { from_hf_config("", "config.json"); }), StartsWith("config.json:1:1: not valid JSON"));
  EXPECT_THAT(error_of([] { from_hf_config("[1]", "config.json"); }), HasSubstr("holds a list, expected an object"));
  EXPECT_THAT(error_of([] { from_hf_config("{}", "config.json"); }), HasSubstr("model_type is missing"));
  EXPECT_THAT(error_of([] { from_hf_config(R"({"model_type": "gpt2", "model_type": "llama"})", "config.json"); }),
              HasSubstr("key \"model_type\" is given twice"));
  const std::string whole = llama4().dump(2);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(error_of([&] { from_hf_config(whole.substr(0, size), "config.json"); }), HasSubstr("not valid JSON"));
}

TEST(ToHf, ReadsBackAsTheSameModel) {
  for (const Config& config : test::tiny_models()) {
    Config written = config;
    if (written.family == Family::llama) written.hidden = 28;  // transformers wants a multiple of the heads
    const std::string text = to_hf_config(written);
    EXPECT_EQ(from_hf_config(text, "config.json"), written) << text;
  }
}

TEST(ToHf, ReadsBackAsTheSameModelInOneVersionsKeysAlone) {
  // What transformers 4 or 5 would make of the file: the other's keys mean nothing to it.
  for (const Config& config : {test::tiny_neox(), test::tiny_llama()}) {
    Config written = config;
    if (written.family == Family::llama) written.hidden = 28;
    const Json json = Json::parse(to_hf_config(written));
    EXPECT_EQ(read(without(json, "rope_parameters")), written);
    Json five = json;
    for (const char* key : {"rope_scaling", "rope_theta", "rotary_pct", "rotary_emb_base"}) five.erase(key);
    EXPECT_EQ(read(five), written);
    // 5 takes rope_scaling before rope_parameters, and what it lacks from the top: the same again.
    EXPECT_EQ(
        json["rope_scaling"].is_null() || json["rope_scaling"]["rope_type"] == json["rope_parameters"]["rope_type"],
        true);
  }
}

TEST(ToHf, WritesTheTypesThatTransformers5Insists) {
  // Its configs check types: a float must be written as one.
  for (Config config : test::tiny_models()) {
    if (config.family == Family::llama) config.hidden = 28;
    config.init_std = 1, config.rotary_base = 10000, config.dropout = 0;
    const Json json = Json::parse(to_hf_config(config));
    EXPECT_TRUE(json["initializer_range"].is_number_float());
    for (const char* key : {"layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps", "rope_theta", "rotary_pct",
                            "embd_pdrop", "hidden_dropout", "attention_dropout"})
      EXPECT_TRUE(!json.contains(key) || json[key].is_number_float()) << key;
    for (const char* key : {"n_layer", "num_hidden_layers", "vocab_size", "n_positions", "max_position_embeddings"})
      EXPECT_TRUE(!json.contains(key) || json[key].is_number_integer()) << key;
    EXPECT_EQ(json["architectures"].size(), 1u);
  }
}

TEST(ToHf, CarriesTypeAndTokens) {
  const Json plain = Json::parse(to_hf_config(test::tiny_gpt2()));
  EXPECT_EQ(plain["dtype"], "float32");
  EXPECT_EQ(plain["torch_dtype"], "float32");
  EXPECT_TRUE(plain["bos_token_id"].is_null());
  EXPECT_TRUE(plain["eos_token_id"].is_null());

  HfExtras extras{.dtype = DType::bf16, .bos_token = 1, .eos_tokens = {2}};
  std::string text = to_hf_config(test::tiny_gpt2(), extras);
  EXPECT_EQ(Json::parse(text)["dtype"], "bfloat16");
  EXPECT_EQ(Json::parse(text)["eos_token_id"], 2);
  EXPECT_EQ(hf_extras(text, "f").bos_token, 1);
  EXPECT_THAT(hf_extras(text, "f").eos_tokens, ElementsAre(2));
  extras.eos_tokens = {2, 3};
  text = to_hf_config(test::tiny_gpt2(), extras);
  EXPECT_THAT(hf_extras(text, "f").eos_tokens, ElementsAre(2, 3));
  EXPECT_EQ(hf_extras("{}", "f").bos_token, std::nullopt);
  EXPECT_THAT(hf_extras("{\"eos_token_id\": null}", "f").eos_tokens, IsEmpty());
  EXPECT_THAT(error_of([] { hf_extras(R"({"eos_token_id": "x"})", "f"); }), HasSubstr("f: eos_token_id is \"x\""));
  EXPECT_THAT(error_of([] { hf_extras(R"({"eos_token_id": [1, 2.5]})", "f"); }),
              HasSubstr("f: eos_token_id holds 2.5"));
}

TEST(ToHf, RefusesWhatTransformersCannotBe) {
  Config config = test::tiny_llama();
  config.hidden = 26;
  EXPECT_NO_THROW(validate(config, "x"));
  EXPECT_THAT(error_of([&] { to_hf_config(config); }), HasSubstr("heads = 4 does not divide hidden = 26"));
}

TEST(SharedVectors, ConfigsAreReadAndWritten) {
  STRATA_NEED_SHARED("vectors/gpt2-tiny/config.json");
  int read_ones = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::shared_folder() / "vectors")) {
    const auto file = entry.path() / "config.json";
    if (!std::filesystem::exists(file)) continue;
    const std::string text = files::read_text(file);
    const Config config = from_hf_config(text, file.string());
    EXPECT_EQ(config.vocab, 211);
    EXPECT_EQ(from_hf_config(to_hf_config(config), "again"), config);
    // Every key of theirs that says something about the model comes out with the same value.
    const Json theirs = Json::parse(text), ours = Json::parse(to_hf_config(config, hf_extras(text, file.string())));
    for (const auto& [key, value] : theirs.items()) {
      EXPECT_EQ(ours.value(key, value), value) << entry.path() << " " << key;
    }
    ++read_ones;
  }
  EXPECT_GE(read_ones, 3);
}

}  // namespace
}  // namespace strata::model
