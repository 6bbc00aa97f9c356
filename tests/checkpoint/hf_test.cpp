#include "checkpoint/hf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "files/number_formats.h"
#include "support/models.h"
#include "support/scratch.h"

namespace strata::checkpoint {
namespace {

using files::Safetensors;
using model::Config;
using model::Parameter;
using model::Unit;
using test::error_of;
using test::Scratch;
using test::slurp;
using test::spill;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// Made-up weights: a function of the name and index; padding rows hold something that must never be saved.
void made_up(const Unit& unit, const Parameter& parameter, std::span<float> out) {
  const uint64_t key = random_key(1, unit.name + "." + parameter.name);
  const int64_t row = parameter.matrix() ? parameter.shape[1] : 1;
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<int64_t>(i) < parameter.true_rows * row ? static_cast<float>(normal(key, i)) : 1e30f;
}

/// The tiny models, in forms that transformers has.
std::vector<Config> models() {
  std::vector<Config> configs = test::tiny_models();
  for (Config& config : configs)
    if (config.family == model::Family::llama) config.hidden = 28;
  return configs;
}
Config gpt2() { return models()[0]; }
Config neox() { return models()[1]; }
Config llama() { return models()[2]; }
Config tied_llama() { return models()[5]; }

/// A tensor taken out of its file.
struct Loose {
  DType dtype;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const Loose&) const = default;
};
using LooseTensors = std::map<std::string, Loose>;

LooseTensors load(const std::filesystem::path& folder) {
  const Safetensors tensors = Safetensors::open_folder(folder);
  LooseTensors loose;
  for (const auto& [name, tensor] : tensors.tensors())
    loose[name] = {*tensor.dtype, tensor.shape,
                   std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())};
  return loose;
}

void store(const std::filesystem::path& file, const LooseTensors& loose) {
  std::vector<files::TensorSpec> specs;
  for (const auto& [name, tensor] : loose) specs.push_back({name, tensor.dtype, tensor.shape});
  files::SafetensorsWriter writer(file, specs, {{"format", "pt"}});
  for (const auto& [name, tensor] : loose) writer.write(std::as_bytes(std::span(tensor.bytes)));
  writer.commit();
}

/// A folder with one model, to be changed and opened.
class Model {
 public:
  explicit Model(const Config& config, const HfExport& options = {}) : config_(config) {
    export_hf(folder(), config, made_up, options);
    tensors_ = load(folder());
  }
  std::filesystem::path folder() const { return scratch_ / "model"; }
  LooseTensors& tensors() { return tensors_; }
  /// Gives every tensor the name that `rename` makes of it.
  template <typename Rename>
  void rename(Rename&& rename) {
    LooseTensors renamed;
    for (auto& [name, tensor] : tensors_) renamed[rename(name)] = std::move(tensor);
    tensors_ = std::move(renamed);
  }
  void save() { store(folder() / "model.safetensors", tensors_); }
  void set(const char* key, nlohmann::json value) {
    nlohmann::json json = nlohmann::json::parse(slurp(folder() / "config.json"));
    json[key] = std::move(value);
    spill(folder() / "config.json", json.dump());
  }
  HfFolder open() {
    save();
    return HfFolder(folder());
  }
  std::string error() {
    return error_of([&] { open(); });
  }

 private:
  Config config_;
  Scratch scratch_;
  LooseTensors tensors_;
};

void expect_made_up(
    const HfFolder& folder, float (*rounded)(float) = [](float x) { return x; }) {
  for (const Unit& unit : model::units(folder.config())) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<float> expected(static_cast<size_t>(parameter.shape.elements())), read(expected.size(), -7.0f);
      made_up(unit, parameter, expected);
      for (float& value : expected) value = value == 1e30f ? 0.0f : rounded(value);  // padding rows come back as zero
      folder.read(unit, parameter, read);
      ASSERT_EQ(read, expected) << unit.name << "." << parameter.name;
    }
  }
}

TEST(Export, ReadsBackAsTheSameModel) {
  for (const Config& config : models()) {
    Scratch scratch;
    export_hf(scratch / "m", config, made_up);
    EXPECT_THAT(scratch.entries(), ElementsAre("m"));
    const HfFolder folder(scratch / "m");
    EXPECT_EQ(folder.config(), config);
    EXPECT_EQ(folder.extras().dtype, DType::f32);
    expect_made_up(folder);
  }
}

TEST(Export, NamesAndOrderAreThoseOfTransformers) {
  Model m(gpt2());
  const std::string file = slurp(m.folder() / "model.safetensors");
  EXPECT_THAT(file.substr(8),
              StartsWith(R"({"__metadata__":{"format":"pt"},"transformer.h.0.attn.c_attn.bias":{"dtype":"F32",)"
                         R"("shape":[72],"data_offsets":[0,288]},"transformer.h.0.attn.c_attn.weight":)"
                         R"({"dtype":"F32","shape":[24,72],"data_offsets":[288,7200]})"));
  EXPECT_EQ(m.tensors().count("lm_head.weight"), 0u);  // tied: once
  EXPECT_THAT(m.tensors()["transformer.wte.weight"].shape, ElementsAre(37, 24));
}

TEST(Export, AsksForEachParameterOnce) {
  for (const Config& config : models()) {
    Scratch scratch;
    std::map<std::string, int> asked;
    export_hf(scratch / "m", config, [&](const Unit& unit, const Parameter& parameter, std::span<float> out) {
      ++asked[unit.name + "." + parameter.name];
      made_up(unit, parameter, out);
    });
    size_t parameters = 0;
    for (const Unit& unit : model::units(config)) parameters += unit.parameters.size();
    EXPECT_EQ(asked.size(), parameters);
    for (const auto& [name, times] : asked) EXPECT_EQ(times, 1) << name;
  }
}

TEST(Export, ShardsAboveTheLimit) {
  for (const Config& config : models()) {
    Scratch scratch;
    export_hf(scratch / "whole", config, made_up);
    export_hf(scratch / "shards", config, made_up, {.extras = {}, .max_shard_bytes = 9000});
    EXPECT_TRUE(std::filesystem::exists(scratch / "shards/model.safetensors.index.json"));
    EXPECT_FALSE(std::filesystem::exists(scratch / "shards/model.safetensors"));
    int shards = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch / "shards")) {
      if (!entry.path().filename().string().starts_with("model-")) continue;
      ++shards;
      const auto count = Safetensors::open_file(entry.path()).tensors().size();
      EXPECT_TRUE(count == 1 || std::filesystem::file_size(entry.path()) < 9000 + 8 * 1024) << entry.path();
    }
    EXPECT_GT(shards, 3);
    EXPECT_EQ(load(scratch / "shards"), load(scratch / "whole"));
    expect_made_up(HfFolder(scratch / "shards"));
  }
}

TEST(Export, NarrowTypesAreRoundedAndComeBackTheSame) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Scratch scratch;
    export_hf(scratch / "a", llama(), made_up, {.extras = {.dtype = type, .bos_token = 1, .eos_tokens = {2, 3}}});
    const HfFolder a(scratch / "a");
    EXPECT_EQ(a.extras().dtype, type);
    EXPECT_EQ(a.extras().bos_token, 1);
    EXPECT_THAT(a.extras().eos_tokens, ElementsAre(2, 3));
    if (type == DType::bf16)
      expect_made_up(a, [](float x) { return files::bf16_to_float(files::float_to_bf16(x)); });
    else
      expect_made_up(a, [](float x) { return files::f16_to_float(files::float_to_f16(x)); });
    export_hf(scratch / "b", a.config(), [&](const auto& u, const auto& p, auto out) { a.read(u, p, out); },
              {.extras = a.extras()});
    EXPECT_EQ(load(scratch / "b"), load(scratch / "a"));
    EXPECT_EQ(slurp(scratch / "b/config.json"), slurp(scratch / "a/config.json"));
  }
}

TEST(Export, LeavesNothingBehindWhenItFails) {
  Scratch scratch;
  int left = 5;
  EXPECT_THROW(export_hf(scratch / "m", gpt2(),
                         [&](const auto&, const auto&, auto) {
                           if (--left == 0) throw std::runtime_error("lost a rank");
                         }),
               std::runtime_error);
  EXPECT_THAT(scratch.entries(), IsEmpty());

  Config impossible = llama();
  impossible.hidden = 30;
  EXPECT_THAT(error_of([&] { export_hf(scratch / "m", impossible, made_up); }), HasSubstr("does not divide hidden"));
  EXPECT_THAT(scratch.entries(), IsEmpty());
}

TEST(Export, ReplacesAFolderWhole) {
  Scratch scratch;
  std::filesystem::create_directory(scratch / "m");
  spill(scratch / "m/old.txt", "x");
  export_hf(scratch / "m", gpt2(), made_up);
  EXPECT_FALSE(std::filesystem::exists(scratch / "m/old.txt"));
  expect_made_up(HfFolder(scratch / "m"));
}

TEST(Import, AcceptsNamesWithoutThePrefix) {
  for (const Config& config : models()) {
    Model m(config);
    const std::string prefix(model::hf_prefix(config.family));
    m.rename([&](const std::string& name) { return name.starts_with(prefix) ? name.substr(prefix.size()) : name; });
    expect_made_up(m.open());
  }
}

TEST(Import, WidensOtherTypes) {
  Model m(neox());
  for (auto& [name, tensor] : m.tensors()) {
    std::string wide;
    for (size_t i = 0; i < tensor.bytes.size(); i += 4) {
      float value;
      std::memcpy(&value, tensor.bytes.data() + i, 4);
      const double d = value;
      wide.append(reinterpret_cast<const char*>(&d), 8);
    }
    tensor = {DType::f64, tensor.shape, wide};
  }
  const HfFolder folder = m.open();
  EXPECT_EQ(folder.extras().dtype, DType::f32);
  expect_made_up(folder);
}

TEST(Import, IgnoresBuffers) {
  const Loose mask{DType::u8, {1, 1, 2, 2}, "xxxx"}, scalar{DType::f32, {}, "1234"};
  Model a(gpt2());
  a.tensors()["transformer.h.0.attn.bias"] = mask;
  a.tensors()["transformer.h.1.attn.masked_bias"] = scalar;
  expect_made_up(a.open());
  Model b(neox());
  b.tensors()["gpt_neox.layers.0.attention.bias"] = mask;
  b.tensors()["gpt_neox.layers.0.attention.rotary_emb.inv_freq"] = scalar;
  b.tensors()["gpt_neox.layers.1.attention.masked_bias"] = scalar;
  expect_made_up(b.open());
  Model c(llama());
  c.tensors()["model.layers.0.self_attn.rotary_emb.inv_freq"] = scalar;
  c.tensors()["model.rotary_emb.inv_freq"] = scalar;
  expect_made_up(c.open());
}

TEST(Import, TiedCopiesMustBeTheTable) {
  for (const auto& [config, table, head] : {std::tuple(gpt2(), "transformer.wte.weight", "lm_head.weight"),
                                            std::tuple(models()[4], "gpt_neox.embed_in.weight", "embed_out.weight"),
                                            std::tuple(tied_llama(), "model.embed_tokens.weight", "lm_head.weight")}) {
    ASSERT_TRUE(config.tied);
    Model m(config);
    m.tensors()[head] = m.tensors()[table];
    expect_made_up(m.open());
    m.tensors()[head].bytes.back() ^= 1;
    EXPECT_THAT(m.error(), AllOf(HasSubstr("model.safetensors: tensor \"" + std::string(head) + "\" differs from"),
                                 HasSubstr(table), HasSubstr("tie_word_embeddings")));
    m.tensors()[head] = {DType::f32, {1}, "1234"};
    EXPECT_THAT(m.error(), HasSubstr("differs from"));
  }
}

TEST(Import, NamesEveryMissingTensor) {
  for (const Config& config : {gpt2(), neox(), llama()}) {
    Model m(config);
    const LooseTensors whole = m.tensors();
    for (const auto& [name, tensor] : whole) {
      m.tensors().erase(name);
      EXPECT_THAT(m.error(), AllOf(HasSubstr("model.safetensors: lacks \""), HasSubstr(name))) << name;
      m.tensors() = whole;
    }
  }
}

TEST(Import, SaysHowManyAreMissing) {
  Model m(gpt2());
  m.set("n_layer", 3);
  EXPECT_THAT(m.error(), AllOf(HasSubstr("lacks \"transformer.h.2.ln_1.weight\""), HasSubstr("and 9 more"),
                               HasSubstr("config.json describes")));
}

TEST(Import, HintsAtAnUntiedHead) {
  Model m(gpt2());
  m.set("tie_word_embeddings", false);
  EXPECT_THAT(m.error(), AllOf(HasSubstr("lacks \"lm_head.weight\""), HasSubstr("tie_word_embeddings")));
}

TEST(Import, NamesExtraTensors) {
  Model m(neox());
  m.tensors()["score.weight"] = {DType::f32, {1, 1}, "1234"};
  EXPECT_THAT(m.error(),
              AllOf(HasSubstr("model.safetensors: tensor \"score.weight\" of shape [1, 1] is no part of the gpt_neox"),
                    HasSubstr("config.json")));
  m.tensors()["lora.weight"] = {DType::f32, {1, 1}, "1234"};
  EXPECT_THAT(m.error(), HasSubstr("2 such tensors"));
  Model fewer(neox());
  fewer.set("num_hidden_layers", 1);
  EXPECT_THAT(fewer.error(), AllOf(HasSubstr("gpt_neox.layers.1."), HasSubstr("12 such tensors")));
}

TEST(Import, NamesWrongShapes) {
  for (const Config& config : {gpt2(), neox(), llama()}) {
    Model m(config);
    const LooseTensors whole = m.tensors();
    for (const auto& [name, tensor] : whole) {
      Loose& changed = m.tensors()[name];
      if (changed.shape.size() == 2 && changed.shape[0] != changed.shape[1]) {
        std::swap(changed.shape[0], changed.shape[1]);
      } else {
        changed.shape.push_back(1);
      }
      EXPECT_THAT(
          m.error(),
          AllOf(HasSubstr("model.safetensors: tensor \"" + name + "\" has shape " + files::shape_text(changed.shape)),
                HasSubstr("it must be " + files::shape_text(tensor.shape)), HasSubstr("config.json")));
      m.tensors() = whole;
    }
  }
}

TEST(Import, NamesUnreadableTypes) {
  Model m(gpt2());
  Loose& table = m.tensors()["transformer.wte.weight"];
  table.dtype = DType::i32;
  EXPECT_THAT(m.error(), HasSubstr("tensor \"transformer.wte.weight\" is I32"));
}

TEST(Import, MixedPrefixesAreMissingTensors) {
  Model m(gpt2());
  m.tensors()["h.0.ln_1.weight"] = m.tensors()["transformer.h.0.ln_1.weight"];
  EXPECT_THAT(m.error(), HasSubstr("\"h.0.ln_1.weight\" of shape [24] is no part"));
  m.tensors().erase("transformer.h.0.ln_1.weight");
  EXPECT_THAT(m.error(),
              AllOf(HasSubstr("lacks \"transformer.h.0.ln_1.weight\""), HasSubstr("\"h.0.ln_1.weight\" is there")));
}

TEST(Import, NamesWhatTheFolderLacks) {
  Scratch scratch;
  EXPECT_THAT(error_of([&] { HfFolder(scratch / "none"); }), HasSubstr("none: no such folder"));
  EXPECT_THAT(error_of([&] { HfFolder(scratch.path()); }), HasSubstr("config.json: cannot open"));
  spill(scratch / "config.json", model::to_hf_config(gpt2()));
  EXPECT_THAT(error_of([&] { HfFolder(scratch.path()); }), HasSubstr("has neither model.safetensors nor"));
  spill(scratch / "model.safetensors", "PK\3\4 no such thing");
  EXPECT_THAT(error_of([&] { HfFolder(scratch.path()); }), HasSubstr("model.safetensors: not a safetensors file"));
}

TEST(Import, RefusesEveryKindOfTruncation) {
  Model m(llama());
  const std::string file = slurp(m.folder() / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{8}, size_t{9}, size_t{8 + header / 2}, size_t{8 + header - 1},
                            size_t{8 + header}, size_t{8 + header + 1}, file.size() / 2, file.size() - 1}) {
    spill(m.folder() / "model.safetensors", file.substr(0, size));
    EXPECT_THAT(error_of([&] { HfFolder(m.folder()); }), HasSubstr("model.safetensors: truncated")) << size;
  }
  spill(m.folder() / "model.safetensors", file + "x");
  EXPECT_THAT(error_of([&] { HfFolder(m.folder()); }), HasSubstr("1 bytes after the last tensor"));
}

TEST(Import, NoBitFlippedInTheHeaderGoesUnseenExceptInAType) {
  // A flip can turn a name, type, shape or offset into another that is well-formed; then the model lacks a tensor or
  // has one of a wrong shape. Only F16 for BF16 would be the same size, and that is no single bit.
  Scratch scratch;
  Config config = gpt2();
  config.layers = 1;
  export_hf(scratch / "m", config, made_up);
  const std::string file = slurp(scratch / "m/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const size_t names = file.find("\"transformer");  // what __metadata__ says has no bearing
  std::fstream on_disk(scratch / "m/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  for (size_t i = 0; i < 8 + header; ++i) {
    if (i > 8 && i < names) continue;
    if (i >= 8 + header - 8 && file[i] == ' ') continue;  // padding: white space for white space
    const size_t bit = i % 8;                             // all of them, over the names and numbers that repeat
    on_disk.seekp(static_cast<std::streamoff>(i)).put(static_cast<char>(file[i] ^ (1 << bit))).flush();
    EXPECT_THAT(error_of([&] { HfFolder(scratch / "m"); }), HasSubstr("model.safetensors")) << i << " " << bit;
    on_disk.seekp(static_cast<std::streamoff>(i)).put(file[i]).flush();
  }
}

TEST(SharedVectors, ExportEqualsImportByteForByte) {
  STRATA_NEED_SHARED("vectors/gpt2-tiny/model.safetensors");
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::shared_folder() / "vectors")) {
    if (!std::filesystem::exists(entry.path() / "model.safetensors")) continue;
    ++folders;
    const HfFolder theirs(entry.path());
    EXPECT_EQ(theirs.config().vocab, 211);
    Scratch scratch;
    const ParameterSource source = [&](const Unit& unit, const Parameter& parameter, std::span<float> out) {
      theirs.read(unit, parameter, out);
      if (parameter.name == "table") {
        ASSERT_EQ(parameter.shape[0], 256);
        for (const float value : out.subspan(static_cast<size_t>(211 * parameter.shape[1]))) ASSERT_EQ(value, 0.0f);
      }
    };
    export_hf(scratch / "single", theirs.config(), source, {.extras = theirs.extras()});
    // Not the tensors alone: the file is the one that transformers wrote.
    EXPECT_EQ(slurp(scratch / "single/model.safetensors"), slurp(entry.path() / "model.safetensors")) << entry.path();
    EXPECT_EQ(HfFolder(scratch / "single").config(), theirs.config());

    export_hf(scratch / "shards", theirs.config(), source, {.extras = theirs.extras(), .max_shard_bytes = 100'000});
    EXPECT_EQ(load(scratch / "shards"), load(entry.path()));
  }
  EXPECT_GE(folders, 3);
}

TEST(SharedVectors, GradientsOfTheReferenceHaveTheNamesAndShapesOfTheSlices) {
  STRATA_NEED_SHARED("vectors/gpt2-tiny/reference.safetensors");
  for (const char* name : {"gpt2-tiny", "neox-tiny", "llama-tiny"}) {
    const auto path = test::shared_folder() / "vectors" / name;
    const HfFolder folder(path);
    const Safetensors reference = Safetensors::open_file(path / "reference.safetensors");
    size_t gradients = 0;
    for (const Unit& unit : model::units(folder.config()))
      for (const Parameter& parameter : unit.parameters)
        for (const model::HfSlice& slice : model::hf_slices(folder.config(), unit, parameter)) {
          EXPECT_EQ(reference.at("grad." + slice.name).shape, folder.tensor(slice).shape);
          ++gradients;
        }
    size_t stored = 0;
    for (const auto& [key, tensor] : reference.tensors()) stored += key.starts_with("grad.") ? 1 : 0;
    EXPECT_EQ(gradients, stored);
  }
}

}  // namespace
}  // namespace strata::checkpoint
