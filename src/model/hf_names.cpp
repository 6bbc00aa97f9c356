#include "model/hf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace strata::model {

namespace {

using Layout = HfSlice::Layout;

struct Name {
  std::string_view ours, theirs;
};

constexpr std::array gpt2_modules = {
    Name{"norm1", "ln_1"}, Name{"attention.qkv", "attn.c_attn"}, Name{"attention.out", "attn.c_proj"},
    Name{"norm2", "ln_2"}, Name{"mlp.up", "mlp.c_fc"},           Name{"mlp.down", "mlp.c_proj"}};
constexpr std::array gpt_neox_modules = {
    Name{"norm1", "input_layernorm"},         Name{"attention.qkv", "attention.query_key_value"},
    Name{"attention.out", "attention.dense"}, Name{"norm2", "post_attention_layernorm"},
    Name{"mlp.up", "mlp.dense_h_to_4h"},      Name{"mlp.down", "mlp.dense_4h_to_h"}};
// attention.qkv and mlp.up are several modules each: see hf_slices.
constexpr std::array llama_modules = {Name{"norm1", "input_layernorm"}, Name{"attention.out", "self_attn.o_proj"},
                                      Name{"norm2", "post_attention_layernorm"}, Name{"mlp.down", "mlp.down_proj"}};

std::span<const Name> modules(Family family) {
  switch (family) {
    case Family::gpt2: return gpt2_modules;
    case Family::gpt_neox: return gpt_neox_modules;
    case Family::llama: return llama_modules;
  }
  return {};
}

/// Names outside the layers: table, positions, final norm, head.
struct Outer {
  std::string_view layers, table, norm, head;
};

Outer outer(Family family) {
  switch (family) {
    case Family::gpt2: return {"h", "wte", "ln_f", "lm_head"};
    case Family::gpt_neox: return {"layers", "embed_in", "final_layer_norm", "embed_out"};
    case Family::llama: return {"layers", "embed_tokens", "norm", "lm_head"};
  }
  return {};
}

/// "layers.12" -> "12".
std::string_view layer_number(const Unit& unit) {
  const std::string_view name = unit.name;
  return name.substr(name.rfind('.') + 1);
}

ops::Shape with_rows(const Parameter& parameter, int64_t rows) {
  return parameter.matrix() ? ops::Shape{rows, parameter.shape[1]} : ops::Shape{rows};
}

int64_t row_length(const Parameter& parameter) { return parameter.matrix() ? parameter.shape[1] : 1; }

/// Calls copy(row of the slice in our order, row in theirs) for each row of a per_head_qkv slice.
template <typename Copy>
void each_qkv_row(const Config& config, Copy copy) {
  const int64_t heads = config.heads, dim = config.head_dim;
  for (int64_t part = 0; part < 3; ++part)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < dim; ++i) copy((part * heads + head) * dim + i, (head * 3 + part) * dim + i);
}

void check_sizes(const Parameter& parameter, const HfSlice& slice, size_t values, size_t tensor) {
  STRATA_CHECK(static_cast<int64_t>(values) == parameter.shape.elements(), "{} values for {}", values, parameter.name);
  STRATA_CHECK(static_cast<int64_t>(tensor) == slice.shape.elements(), "{} values for {}", tensor, slice.name);
}

/// out[c][r] = in[r][c], in tiles so that neither side strides through memory for long.
void transpose(const float* in, float* out, int64_t rows, int64_t columns) {
  constexpr int64_t tile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += tile)
    for (int64_t c0 = 0; c0 < columns; c0 += tile)
      for (int64_t r = r0; r < std::min(r0 + tile, rows); ++r)
        for (int64_t c = c0; c < std::min(c0 + tile, columns); ++c) out[c * rows + r] = in[r * columns + c];
}

}  // namespace

std::string_view hf_prefix(Family family) {
  switch (family) {
    case Family::gpt2: return "transformer.";
    case Family::gpt_neox: return "gpt_neox.";
    case Family::llama: return "model.";
  }
  return {};
}

std::string_view hf_head_name(Family family) {
  return family == Family::gpt_neox ? "embed_out.weight" : "lm_head.weight";
}

std::vector<HfSlice> hf_slices(const Config& config, const Unit& unit, const Parameter& parameter) {
  const std::string prefix(hf_prefix(config.family));
  const Outer names = outer(config.family);
  const auto one = [&](std::string name, Layout layout = Layout::same) {
    const int64_t rows = parameter.true_rows;
    const ops::Shape shape =
        layout == Layout::transposed ? ops::Shape{parameter.shape[1], rows} : with_rows(parameter, rows);
    return std::vector<HfSlice>{{std::move(name), shape, layout, 0, rows}};
  };

  if (unit.kind == UnitKind::embedding) {
    if (parameter.name == "table") return one(fmt::format("{}{}.weight", prefix, names.table));
    if (parameter.name == "positions") return one(prefix + "wpe.weight");
  } else if (unit.kind == UnitKind::head) {
    if (parameter.name == "table") return one(std::string(hf_head_name(config.family)));
    if (parameter.name.starts_with("norm."))
      return one(fmt::format("{}{}{}", prefix, names.norm, parameter.name.substr(4)));
  } else {
    const size_t dot = parameter.name.rfind('.');
    const std::string_view module = std::string_view(parameter.name).substr(0, dot);
    const std::string_view kind = std::string_view(parameter.name).substr(dot + 1);  // weight or bias
    const std::string layer = fmt::format("{}{}.{}.", prefix, names.layers, layer_number(unit));

    if (config.family == Family::llama && (module == "attention.qkv" || module == "mlp.up")) {
      const int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
      std::vector<HfSlice> slices;
      int64_t row = 0;
      const auto add = [&](std::string_view name, int64_t rows) {
        slices.push_back(
            {fmt::format("{}{}.{}", layer, name, kind), with_rows(parameter, rows), Layout::same, row, rows});
        row += rows;
      };
      if (module == "mlp.up") {
        add("mlp.gate_proj", config.ffn);
        add("mlp.up_proj", config.ffn);
      } else {
        add("self_attn.q_proj", q);
        add("self_attn.k_proj", kv);
        add("self_attn.v_proj", kv);
      }
      return slices;
    }
    for (const Name& name : modules(config.family)) {
      if (name.ours != module) continue;
      Layout layout = Layout::same;
      if (config.family == Family::gpt2 && parameter.matrix()) layout = Layout::transposed;
      if (config.family == Family::gpt_neox && module == "attention.qkv") layout = Layout::per_head_qkv;
      return one(fmt::format("{}{}.{}", layer, name.theirs, kind), layout);
    }
  }
  STRATA_CHECK(false, "{}.{} has no name in a Hugging Face {}", unit.name, parameter.name, name_of(config.family));
  return {};
}

bool hf_is_buffer(Family family, std::string_view name) {
  // "rotary_emb.inv_freq" of the whole model, or PREFIX.N.REST of a layer.
  if (family != Family::gpt2 && name == "rotary_emb.inv_freq") return true;
  const std::string layers = fmt::format("{}.", outer(family).layers);
  if (!name.starts_with(layers)) return false;
  name.remove_prefix(layers.size());
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0 || digits == name.size() || name[digits] != '.') return false;
  const std::string_view rest = name.substr(digits + 1);
  switch (family) {
    case Family::gpt2: return rest == "attn.bias" || rest == "attn.masked_bias";
    case Family::gpt_neox:
      return rest == "attention.bias" || rest == "attention.masked_bias" || rest == "attention.rotary_emb.inv_freq";
    case Family::llama: return rest == "self_attn.rotary_emb.inv_freq";
  }
  return false;
}

void to_hf(const Config& config, const Parameter& parameter, const HfSlice& slice,
           std::span<const float> parameter_values, std::span<float> tensor) {
  check_sizes(parameter, slice, parameter_values.size(), tensor.size());
  const int64_t length = row_length(parameter);
  const float* rows = parameter_values.data() + slice.row_begin * length;
  switch (slice.layout) {
    case Layout::same: std::copy_n(rows, slice.rows * length, tensor.data()); break;
    case Layout::transposed: transpose(rows, tensor.data(), slice.rows, length); break;
    case Layout::per_head_qkv:
      each_qkv_row(config, [&](int64_t ours, int64_t theirs) {
        std::copy_n(rows + ours * length, length, tensor.data() + theirs * length);
      });
      break;
  }
}

void from_hf(const Config& config, const Parameter& parameter, const HfSlice& slice, std::span<const float> tensor,
             std::span<float> parameter_values) {
  check_sizes(parameter, slice, parameter_values.size(), tensor.size());
  const int64_t length = row_length(parameter);
  float* rows = parameter_values.data() + slice.row_begin * length;
  switch (slice.layout) {
    case Layout::same: std::copy_n(tensor.data(), slice.rows * length, rows); break;
    case Layout::transposed: transpose(tensor.data(), rows, length, slice.rows); break;
    case Layout::per_head_qkv:
      each_qkv_row(config, [&](int64_t ours, int64_t theirs) {
        std::copy_n(tensor.data() + theirs * length, length, rows + ours * length);
      });
      break;
  }
}

}  // namespace strata::model
