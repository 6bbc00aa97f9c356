// strata generate: text from a model

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/hf.h"
#include "cli/verb.h"
#include "core/error.h"
#include "core/random.h"
#include "data/tokenizer.h"
#include "device/device.h"
#include "device/threads.h"
#include "execute/generator.h"
#include "execute/sampling.h"

namespace strata::cli {

namespace {

struct Arguments {
  std::string folder, tokenizer, prompt, dtype = "fp32";
  int64_t tokens = 0, samples = 1;  // tokens 0: default_tokens, or what the model has room for
  execute::Sampling sampling{.temperature = 0.8};
  uint64_t seed = 1234;
  int threads = 1;
  bool json = false;
};

constexpr int64_t default_tokens = 100;

void generate(Arguments arguments) {
  device::prepare_threads(arguments.threads, 1, program_arguments());
  const checkpoint::HfFolder folder(arguments.folder);
  const auto tokenizer = data::load_tokenizer(arguments.tokenizer.empty() ? arguments.folder : arguments.tokenizer);
  if (tokenizer->vocab() > folder.config().vocab)
    throw input_error("{}: the tokenizer has {} ids, the model's vocabulary {}: they do not belong together",
                      arguments.tokenizer.empty() ? arguments.folder : arguments.tokenizer, tokenizer->vocab(),
                      folder.config().vocab);
  const std::optional<int32_t> end = tokenizer->end_of_document();
  std::vector<int32_t> prompt;
  tokenizer->encode(arguments.prompt, prompt);
  if (prompt.empty()) {
    if (!end)
      throw input_error(
          "--prompt is empty and the tokenizer has no end-of-document token to begin with; give a prompt");
    prompt.push_back(*end);
  }
  const int64_t longest = folder.config().sequence;
  if (arguments.tokens == 0)
    arguments.tokens = std::clamp<int64_t>(longest - static_cast<int64_t>(prompt.size()), 1, default_tokens);
  const int64_t wanted = static_cast<int64_t>(prompt.size()) + arguments.tokens;
  if (wanted > longest)
    throw input_error(
        "a prompt of {} tokens and --tokens {} are more than the model's longest sequence, {}; use --tokens {} or less",
        prompt.size(), arguments.tokens, longest, std::max<int64_t>(0, longest - static_cast<int64_t>(prompt.size())));

  const auto device = device::make_cpu(arguments.threads);
  execute::Generator generator(folder.config(), compute_type(arguments.dtype), *device, arguments.threads,
                               [&](const model::Unit& unit, const model::Parameter& parameter, std::span<float> out) {
                                 folder.read(unit, parameter, out);
                               });
  nlohmann::ordered_json texts = nlohmann::ordered_json::array();
  int64_t made = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t s = 0; s < arguments.samples; ++s) {
    generator.clear();
    generator.feed(prompt);
    const uint64_t key = random_key(arguments.seed, "generate");
    std::vector<int32_t> ids;
    std::string text;
    if (!arguments.json)
      print(arguments.samples > 1 ? fmt::format("--- {}\n{}", s + 1, arguments.prompt) : arguments.prompt);
    for (int64_t i = 0; i < arguments.tokens; ++i) {
      const Random4 r = philox(key, static_cast<uint64_t>(s), static_cast<uint64_t>(i));
      const double random = static_cast<double>(uint64_t{r[0]} << 21 ^ r[1] >> 11) * 0x1p-53;
      const int32_t id = execute::sample(generator.logits(), arguments.sampling, random);
      ++made;
      // Ids past the tokenizer's are padding of the model's vocabulary: they mean nothing and end the text like its end.
      if (id == end || id >= tokenizer->vocab()) break;
      ids.push_back(id);
      // Only an exact tokenizer's pieces can be decoded one by one: others treat the first piece of a text as special.
      std::string piece;
      if (tokenizer->exact()) {
        piece = tokenizer->decode(std::span(&ids.back(), 1));
      } else {
        const std::string whole = tokenizer->decode(ids);
        piece = whole.substr(std::min(text.size(), whole.size()));
      }
      text += piece;
      if (!arguments.json) {
        print(piece);
        std::fflush(stdout);
      }
      if (i + 1 < arguments.tokens) generator.feed(std::span(&ids.back(), 1));
    }
    if (arguments.json)
      texts.push_back({{"text", text}, {"tokens", ids}});
    else
      print_line("");
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (arguments.json)
    print_json({{"model", arguments.folder},
                {"prompt", arguments.prompt},
                {"prompt_tokens", prompt},
                {"samples", texts},
                {"seconds", seconds},
                {"tokens_per_s", static_cast<double>(made) / seconds}});
}

}  // namespace

void add_generate(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("generate", "Continue a text with a model");
  verb->add_option("FOLDER", arguments->folder, "Model in Hugging Face's form: a saved step of a run, say")->required();
  verb->add_option("--prompt", arguments->prompt, "Text to continue");
  verb->add_option("--tokens", arguments->tokens,
                   "Tokens to add at most (default: 100, or what the model has room for)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  verb->add_option("--samples", arguments->samples, "How many continuations")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  verb->add_option("--temperature", arguments->sampling.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  verb->add_option("--top-k", arguments->sampling.top_k, "Choose among the k likeliest; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  verb->add_option("--top-p", arguments->sampling.top_p, "Choose among the likeliest that make up this probability")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--seed", arguments->seed, "The same seed gives the same text");
  verb->add_option("--tokenizer", arguments->tokenizer, "A tokenizer's file, or the folder it is in (default: FOLDER)");
  add_dtype(*verb, arguments->dtype);
  verb->add_option("--threads", arguments->threads, "Threads to compute with")->check(CLI::Range(1, 1024));
  add_json(*verb, arguments->json);
  verb->callback([arguments] { generate(*arguments); });
}

}  // namespace strata::cli
