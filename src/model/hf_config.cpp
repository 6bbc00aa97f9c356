#include "model/hf_config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "files/json.h"

namespace strata::model {

namespace {

using files::shown;
using files::shown_json;
using Json = nlohmann::json;

/// transformers' names for the activations we have; the last of each list is the one we write for gpt_neox.
constexpr std::array gelu_exact_names = {"gelu_python", "gelu"};
constexpr std::array gelu_tanh_names = {"gelu_accurate", "gelu_fast", "gelu_python_tanh", "gelu_new",
                                        "gelu_pytorch_tanh"};
constexpr std::array silu_names = {"swish", "silu"};

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  for (const std::string_view known : names)
    if (known == name) return true;
  return false;
}

/// An object of the file: typed look-ups whose errors name the file and the key. Null counts as absent, as transformers
/// has it.
class Section {
 public:
  Section(const Json& json, std::string_view file, std::string prefix = "")
      : json_(json), file_(file), prefix_(std::move(prefix)) {}

  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string path(std::string_view key) const { return prefix_ + std::string(key); }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw input_error("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void mistyped(const char* key, std::string_view wanted) const {
    fail("{} is {}, expected {}", path(key), shown_json(*find(key)), wanted);
  }

  std::optional<int64_t> integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX))
      mistyped(key, "a whole number");
    return value->get<int64_t>();
  }
  std::optional<double> number(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) mistyped(key, "a number");
    return value->get<double>();
  }
  std::optional<bool> boolean(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) mistyped(key, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> string(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) mistyped(key, "a string");
    return value->get<std::string>();
  }
  std::optional<Section> object(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) mistyped(key, "an object");
    return Section(*value, file_, path(key) + ".");
  }

  /// A dimension: must be there and be positive.
  int64_t dimension(const char* key) const {
    const std::optional<int64_t> value = integer(key);
    if (!value) fail("{} is missing; a {} config.json has it", path(key), family_);
    if (*value < 1) fail("{} = {}; it must be at least 1", path(key), *value);
    return *value;
  }
  /// A dimension that may be absent.
  int64_t dimension_or(const char* key, int64_t otherwise) const {
    return find(key) != nullptr ? dimension(key) : otherwise;
  }

  void set_family(std::string_view family) { family_ = family; }
  const Json& json() const { return json_; }
  std::string_view file() const { return file_; }

 private:
  const Json& json_;
  std::string_view file_;
  std::string prefix_;
  std::string_view family_;
};

/// A fact that may stand in several places, which must then say the same.
class Agreed {
 public:
  explicit Agreed(const Section& root) : root_(root) {}
  void add(const Section& section, const char* key) {
    const std::optional<double> value = section.number(key);
    if (!value) return;
    if (value_ && *value_ != *value)
      root_.fail("{} = {}, but {} = {}; make them equal, or remove one", path_, *value_, section.path(key), *value);
    if (!value_) path_ = section.path(key);
    value_ = value;
  }
  std::optional<double> value() const { return value_; }

 private:
  const Section& root_;
  std::optional<double> value_;
  std::string path_;
};

/// Keys of other architectures' configs that would change the forward pass, in whichever family they appear.
void refuse_unsupported(const Section& root) {
  const auto refuse = [&](const char* key, std::string_view why) {
    root.fail("{} = {} is not supported: {}", root.path(key), shown_json(*root.find(key)), why);
  };
  for (const auto& [key, why] : std::initializer_list<std::pair<const char*, std::string_view>>{
           {"quantization_config", "quantised weights; save the model unquantised"},
           {"attention_chunk_size", "attention always reaches back to the first token"},
           {"attn_logit_softcapping", "scores are not capped"},
           {"final_logit_softcapping", "logits are not capped"},
           {"num_local_experts", "layers have one MLP, no experts"},
           {"num_experts", "layers have one MLP, no experts"},
           {"pruned_heads", "heads are all kept"},
       })
    if (const Json* value = root.find(key);
        value != nullptr && !((value->is_object() || value->is_array()) && value->empty()))
      refuse(key, why);
  for (const auto& [key, why] : std::initializer_list<std::pair<const char*, std::string_view>>{
           {"add_cross_attention", "the model is a decoder alone"},
           {"is_encoder_decoder", "the model is a decoder alone"},
           {"use_qk_norm", "queries and keys are not normalised"},
           {"qk_layernorm", "queries and keys are not normalised"},
       })
    if (root.boolean(key).value_or(false)) refuse(key, why);
  if (root.find("sliding_window") != nullptr && root.boolean("use_sliding_window").value_or(true))
    refuse("sliding_window", "attention always reaches back to the first token");
  if (root.find("sliding_window") == nullptr && root.boolean("use_sliding_window").value_or(false))
    refuse("use_sliding_window", "attention always reaches back to the first token");
  for (const char* key : {"logit_scale", "logits_scaling", "embedding_multiplier", "residual_multiplier"})
    if (root.number(key).value_or(1) != 1) refuse(key, "nothing is scaled there");
  if (root.find("attention_multiplier") != nullptr)
    refuse("attention_multiplier", "scores are divided by sqrt(head_dim)");
  if (const Json* types = root.find("layer_types")) {
    if (!types->is_array()) root.mistyped("layer_types", "a list");
    for (const Json& type : *types)
      if (type != "full_attention")
        root.fail("layer_types holds {}, which is not supported: every layer has full attention", shown_json(type));
  }
  if (const std::optional<Section> code = root.object("auto_map"))
    for (const char* key : {"AutoModel", "AutoModelForCausalLM"})
      if (code->find(key) != nullptr)
        root.fail("{} = {} is not supported: the folder brings its own model code", code->path(key),
                  shown_json(*code->find(key)));
}

Activation activation_of(const Section& root, const char* key, const char* otherwise, bool swiglu) {
  const std::string name = root.string(key).value_or(otherwise);
  if (swiglu) {
    if (contains(silu_names, name)) return Activation::swiglu;
    root.fail("{} = {} is not supported here: silu is", root.path(key), shown(name));
  }
  if (contains(gelu_exact_names, name)) return Activation::gelu_exact;
  if (contains(gelu_tanh_names, name)) return Activation::gelu_tanh;
  root.fail("{} = {} is not supported here: gelu (exact) and gelu_new, gelu_fast, gelu_pytorch_tanh (tanh) are",
            root.path(key), shown(name));
}

/// rope_scaling is transformers 4's key and rope_parameters 5's; either holds any of these facts.
void read_rope(const Section& root, Config& config, double default_fraction) {
  std::vector<Section> places;
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (std::optional<Section> place = root.object(key); place && !place->json().empty()) places.push_back(*place);

  std::string type = "default", type_path;
  for (const Section& place : places) {
    for (const auto& [key, value] : place.json().items())
      if (value.is_object())
        root.fail("{} is not supported: the same rotary settings hold for every layer", place.path(key));
    for (const char* key : {"rope_type", "type"}) {
      const std::optional<std::string> found = place.string(key);
      if (!found) continue;
      if (*found != "default" && *found != "llama3")
        root.fail("{} = {} is not supported: default and llama3 are", place.path(key), shown(*found));
      if (!type_path.empty() && *found != type)
        root.fail("{} = {}, but {} = {}; make them equal, or remove one", type_path, shown(type), place.path(key),
                  shown(*found));
      type = *found;
      type_path = place.path(key);
    }
  }

  const auto fact = [&](const char* key, std::initializer_list<const char*> at_root) {
    Agreed agreed(root);
    for (const Section& place : places) agreed.add(place, key);
    for (const char* name : at_root) agreed.add(root, name);
    return agreed.value();
  };
  config.rotary_base = fact("rope_theta", {"rope_theta", "rotary_emb_base"}).value_or(10000);
  config.rotary_fraction =
      fact("partial_rotary_factor", {"partial_rotary_factor", "rotary_pct"}).value_or(default_fraction);
  if (type != "llama3") return;

  const auto required = [&](const char* key) {
    const std::optional<double> value = fact(key, {});
    if (!value) root.fail("{} is llama3, which needs {} beside it", type_path, key);
    return *value;
  };
  RopeScaling scaling;
  scaling.factor = required("factor");
  scaling.low_freq_factor = required("low_freq_factor");
  scaling.high_freq_factor = required("high_freq_factor");
  const double original = fact("original_max_position_embeddings", {"original_max_position_embeddings"})
                              .value_or(static_cast<double>(config.sequence));
  if (!(original >= 1 && original <= 0x1p26 && std::floor(original) == original))
    root.fail("original_max_position_embeddings = {}; it must be a whole number from 1 to {}", original, 1 << 26);
  scaling.original_sequence = static_cast<int64_t>(original);
  config.rope_scaling = scaling;
}

void read_gpt2(const Section& root, Config& config) {
  config.layers = root.dimension("n_layer");
  config.hidden = root.dimension("n_embd");
  config.heads = root.dimension("n_head");
  config.sequence = root.dimension("n_positions");
  config.ffn = root.dimension_or("n_inner", 4 * std::min(config.hidden, int64_t{1} << 32));
  config.activation = activation_of(root, "activation_function", "gelu_new", false);
  config.norm_epsilon = root.number("layer_norm_epsilon").value_or(1e-5);

  if (!root.boolean("scale_attn_weights").value_or(true))
    root.fail("scale_attn_weights = false is not supported: scores are divided by sqrt(head_dim)");
  if (root.boolean("scale_attn_by_inverse_layer_idx").value_or(false))
    root.fail("scale_attn_by_inverse_layer_idx = true is not supported: every layer scales its scores alike");
  // reorder_and_upcast_attn only says in which precision and order the same scores are computed.
  root.boolean("reorder_and_upcast_attn");

  config.attention_dropout = root.number("attn_pdrop").value_or(0.1);
  const double embedding = root.number("embd_pdrop").value_or(0.1), residual = root.number("resid_pdrop").value_or(0.1);
  if (embedding != residual)
    root.fail(
        "embd_pdrop = {} and resid_pdrop = {} (0.1 where absent) differ, which is not supported: there is one dropout "
        "for the embedding and the residual branches; set both to the one you want",
        embedding, residual);
  config.dropout = embedding;
}

void read_gpt_neox(const Section& root, Config& config) {
  config.layers = root.dimension("num_hidden_layers");
  config.hidden = root.dimension("hidden_size");
  config.heads = root.dimension("num_attention_heads");
  config.sequence = root.dimension("max_position_embeddings");
  config.ffn = root.dimension("intermediate_size");
  config.activation = activation_of(root, "hidden_act", "gelu", false);
  config.norm_epsilon = root.number("layer_norm_eps").value_or(1e-5);
  config.parallel_residual = root.boolean("use_parallel_residual").value_or(true);
  config.attention_bias = root.boolean("attention_bias").value_or(true);
  config.attention_dropout = root.number("attention_dropout").value_or(0);
  config.dropout = root.number("hidden_dropout").value_or(0);
  read_rope(root, config, 0.25);
}

void read_llama(const Section& root, Config& config) {
  config.layers = root.dimension("num_hidden_layers");
  config.hidden = root.dimension("hidden_size");
  config.heads = root.dimension("num_attention_heads");
  config.kv_heads = root.dimension_or("num_key_value_heads", config.heads);
  config.sequence = root.dimension("max_position_embeddings");
  config.ffn = root.dimension("intermediate_size");
  config.activation = activation_of(root, "hidden_act", "silu", true);
  config.norm_epsilon = root.number("rms_norm_eps").value_or(1e-6);
  config.attention_bias = root.boolean("attention_bias").value_or(false);
  config.mlp_bias = root.boolean("mlp_bias").value_or(false);
  config.attention_dropout = root.number("attention_dropout").value_or(0);
  config.dropout = root.number("hidden_dropout").value_or(0);  // no key of transformers' llama; ours, see write_llama
  read_rope(root, config, 1);
}

}  // namespace

Config from_hf_config(std::string_view json_text, std::string_view file) {
  const Json json = files::parse_json(json_text, file);
  if (!json.is_object())
    throw input_error("{}: holds {}, expected an object: not a config.json", file, shown_json(json));
  Section root(json, file);

  const std::optional<std::string> type = root.string("model_type");
  if (!type) root.fail("model_type is missing: not the config.json of a transformers model");
  const std::optional<Family> family = family_of(*type);
  if (!family) root.fail("model_type = {} is not supported: gpt2, gpt_neox and llama are", shown(*type));
  root.set_family(name_of(*family));
  refuse_unsupported(root);

  Config config;
  config.family = *family;
  config.vocab = root.dimension("vocab_size");
  config.init_std = root.number("initializer_range").value_or(0.02);
  config.tied = root.boolean("tie_word_embeddings").value_or(*family == Family::gpt2);
  switch (*family) {
    case Family::gpt2: read_gpt2(root, config); break;
    case Family::gpt_neox: read_gpt_neox(root, config); break;
    case Family::llama: read_llama(root, config); break;
  }
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  const bool own_head_dim = *family == Family::llama && root.find("head_dim") != nullptr;
  if (!own_head_dim && config.hidden % config.heads != 0)
    root.fail("{} heads do not divide a hidden size of {}", config.heads, config.hidden);
  config.head_dim = own_head_dim ? root.dimension("head_dim") : config.hidden / config.heads;

  if (const std::optional<Section> ours = root.object("strata")) {
    config.preset = ours->string("preset").value_or("");
    const std::string initialisation = ours->string("initialisation").value_or("gpt2");
    if (initialisation != "gpt2" && initialisation != "small_wang")
      root.fail("strata.initialisation = {}; it must be gpt2 or small_wang", shown(initialisation));
    config.initialisation = initialisation == "gpt2" ? Initialisation::gpt2 : Initialisation::small_wang;
  }
  validate(config, file);
  return config;
}

HfExtras hf_extras(std::string_view json_text, std::string_view file) {
  const Json json = files::parse_json(json_text, file);
  if (!json.is_object())
    throw input_error("{}: holds {}, expected an object: not a config.json", file, shown_json(json));
  const Section root(json, file);
  HfExtras extras;
  extras.bos_token = root.integer("bos_token_id");
  const Json* eos = root.find("eos_token_id");
  if (eos == nullptr) return extras;
  if (!eos->is_array()) {
    extras.eos_tokens.push_back(*root.integer("eos_token_id"));
    return extras;
  }
  for (const Json& token : *eos) {
    if (!token.is_number_integer()) root.fail("eos_token_id holds {}, expected whole numbers", shown_json(token));
    extras.eos_tokens.push_back(token.get<int64_t>());
  }
  return extras;
}

namespace {

std::string_view torch_name_of(DType type) {
  switch (type) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: STRATA_CHECK(false, "weights are not written as {}", name_of(type)); return "";
  }
}

/// The rotary facts in the places where transformers 4 (rope_theta and rope_scaling, or rotary_pct and rotary_emb_base)
/// and 5 (rope_parameters) look. 5 prefers rope_scaling where both are given, and completes it from the keys at the
/// top.
void write_rope(const Config& config, Json& json) {
  Json scaling;  // null: none
  Json parameters = {{"rope_type", "default"}};
  if (config.rope_scaling) {
    scaling = {{"rope_type", "llama3"},
               {"factor", config.rope_scaling->factor},
               {"low_freq_factor", config.rope_scaling->low_freq_factor},
               {"high_freq_factor", config.rope_scaling->high_freq_factor},
               {"original_max_position_embeddings", config.rope_scaling->original_sequence}};
    parameters = scaling;
  }
  parameters["rope_theta"] = config.rotary_base;
  if (config.family == Family::gpt_neox) {
    parameters["partial_rotary_factor"] = config.rotary_fraction;
    json["rotary_emb_base"] = config.rotary_base;
    json["rotary_pct"] = config.rotary_fraction;
  } else {
    json["rope_theta"] = config.rotary_base;
  }
  json["rope_scaling"] = scaling;
  json["rope_parameters"] = parameters;
}

void write_gpt2(const Config& config, Json& json) {
  json["architectures"] = {"GPT2LMHeadModel"};
  json["n_layer"] = config.layers;
  json["n_embd"] = config.hidden;
  json["n_head"] = config.heads;
  json["n_positions"] = config.sequence;
  json["n_inner"] = config.ffn == 4 * config.hidden ? Json() : Json(config.ffn);
  json["activation_function"] = config.activation == Activation::gelu_tanh ? "gelu_new" : "gelu";
  json["layer_norm_epsilon"] = config.norm_epsilon;
  json["attn_pdrop"] = config.attention_dropout;
  json["embd_pdrop"] = config.dropout;
  json["resid_pdrop"] = config.dropout;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
}

void write_gpt_neox(const Config& config, Json& json) {
  json["architectures"] = {"GPTNeoXForCausalLM"};
  json["num_hidden_layers"] = config.layers;
  json["hidden_size"] = config.hidden;
  json["num_attention_heads"] = config.heads;
  json["max_position_embeddings"] = config.sequence;
  json["intermediate_size"] = config.ffn;
  json["hidden_act"] = config.activation == Activation::gelu_tanh ? gelu_tanh_names.back() : gelu_exact_names.back();
  json["layer_norm_eps"] = config.norm_epsilon;
  json["use_parallel_residual"] = config.parallel_residual;
  json["attention_bias"] = config.attention_bias;
  json["attention_dropout"] = config.attention_dropout;
  json["hidden_dropout"] = config.dropout;
  write_rope(config, json);
}

void write_llama(const Config& config, Json& json) {
  if (config.hidden % config.heads != 0)
    throw input_error(
        "heads = {} does not divide hidden = {}: Strata can train such a llama, but transformers refuses it, so "
        "there is no Hugging Face folder for it",
        config.heads, config.hidden);
  json["architectures"] = {"LlamaForCausalLM"};
  json["num_hidden_layers"] = config.layers;
  json["hidden_size"] = config.hidden;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["max_position_embeddings"] = config.sequence;
  json["intermediate_size"] = config.ffn;
  json["hidden_act"] = silu_names.back();
  json["rms_norm_eps"] = config.norm_epsilon;
  json["attention_bias"] = config.attention_bias;
  json["mlp_bias"] = config.mlp_bias;
  json["attention_dropout"] = config.attention_dropout;
  // transformers' llama has no such dropout and ignores the key; the trained weights are the same with or without it.
  if (config.dropout != 0) json["hidden_dropout"] = config.dropout;
  json["pretraining_tp"] = 1;
  write_rope(config, json);
}

}  // namespace

std::string to_hf_config(const Config& config, const HfExtras& extras) {
  validate(config, "model");
  Json json = {{"model_type", name_of(config.family)},
               {"vocab_size", config.vocab},
               {"initializer_range", config.init_std},
               {"tie_word_embeddings", config.tied},
               {"dtype", torch_name_of(extras.dtype)},        // transformers 5
               {"torch_dtype", torch_name_of(extras.dtype)},  // transformers 4
               {"use_cache", true},
               {"bos_token_id", extras.bos_token ? Json(*extras.bos_token) : Json()},
               {"eos_token_id", Json()},
               {"pad_token_id", nullptr}};
  if (extras.eos_tokens.size() == 1) json["eos_token_id"] = extras.eos_tokens.front();
  if (extras.eos_tokens.size() > 1) json["eos_token_id"] = extras.eos_tokens;
  switch (config.family) {
    case Family::gpt2: write_gpt2(config, json); break;
    case Family::gpt_neox: write_gpt_neox(config, json); break;
    case Family::llama: write_llama(config, json); break;
  }
  Json ours = Json::object();
  if (!config.preset.empty()) ours["preset"] = config.preset;
  if (config.initialisation == Initialisation::small_wang) ours["initialisation"] = "small_wang";
  if (!ours.empty()) json["strata"] = ours;
  return json.dump(2) + "\n";
}

}  // namespace strata::model
