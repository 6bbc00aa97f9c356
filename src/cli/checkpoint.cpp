// strata checkpoint export

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/hf.h"
#include "cli/verb.h"
#include "core/error.h"
#include "core/text.h"
#include "files/atomic_file.h"

namespace strata::cli {

namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string from, to, dtype;
  double shard_gb = 5;
  bool json = false;
};

void export_model(const Arguments& arguments) {
  const checkpoint::HfFolder source(arguments.from);
  if (fs::exists(arguments.to))
    throw input_error("{}: exists already; choose another folder or remove it", arguments.to);
  checkpoint::HfExport options{.extras = source.extras(),
                               .max_shard_bytes = static_cast<int64_t>(arguments.shard_gb * 1e9)};
  if (arguments.dtype == "fp32") options.extras.dtype = DType::f32;
  if (arguments.dtype == "bf16") options.extras.dtype = DType::bf16;
  if (arguments.dtype == "fp16") options.extras.dtype = DType::f16;
  files::AtomicFolder folder(arguments.to);
  checkpoint::write_hf(
      folder.partial(), source.config(),
      [&](const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) {
        source.read(unit, parameter, out);
      },
      options);
  // What belongs to the model besides its weights goes with it.
  for (const char* name : {"tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "vocab.json", "merges.txt", "generation_config.json"})
    if (fs::exists(fs::path(arguments.from) / name))
      fs::copy_file(fs::path(arguments.from) / name, folder.partial() / name);
  folder.commit();
  const int64_t parameters = model::parameter_count(source.config());
  if (arguments.json)
    print_json({{"from", arguments.from},
                {"to", arguments.to},
                {"parameters", parameters},
                {"dtype", job::precision_name(options.extras.dtype)}});
  else
    print_line(fmt::format("{}: {} parameters in {}", arguments.to, human_count(static_cast<double>(parameters)),
                           job::precision_name(options.extras.dtype)));
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("checkpoint", "Work on saved models");
  verb->require_subcommand(1);
  CLI::App* exported = verb->add_subcommand("export", "Read a model and write it as a Hugging Face folder");
  exported->add_option("FROM", arguments->from, "A saved step of a run, or any folder in Hugging Face's form")
      ->required();
  exported->add_option("TO", arguments->to, "New folder")->required();
  exported->add_option("--dtype", arguments->dtype, "Type of the weights (default: as they are)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  exported->add_option("--shard-gb", arguments->shard_gb, "Split weights above this many GB")
      ->check(CLI::Range(0.001, 1e6));
  add_json(*exported, arguments->json);
  exported->callback([arguments] { export_model(*arguments); });
}

}  // namespace strata::cli
