// strata data build | inspect

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "core/error.h"
#include "core/text.h"
#include "data/build.h"
#include "data/megatron.h"
#include "data/sentencepiece.h"
#include "data/tokenizer.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

// --- build

struct BuildArguments {
  std::vector<std::string> texts;
  std::string out, tokenizer, documents = "form-feed";
  int train_vocab = 0;
  bool bytes = false, json = false;
  data::SentencePieceTraining training;
  data::BuildOptions options;
};

std::atomic<bool> stop = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

// While it lives, SIGINT and SIGTERM ask the build to stop, so that it can remove what it has written.
class StopOnSignal {
 public:
  StopOnSignal() {
    for (size_t i = 0; i < 2; ++i) old_[i] = std::signal(signals[i], [](int) { stop = true; });
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() {
    for (size_t i = 0; i < 2; ++i) std::signal(signals[i], old_[i]);
  }

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM};
  void (*old_[2])(int) = {};
};

Json tokenizer_json(const data::Tokenizer& tokenizer, const std::string& file) {
  return {{"file", file},
          {"description", tokenizer.description()},
          {"vocab", tokenizer.vocab()},
          {"end_of_document", tokenizer.end_of_document() ? Json(*tokenizer.end_of_document()) : Json()},
          {"exact", tokenizer.exact()}};
}

double bytes_per_token(const data::BuiltPart& part) {
  return static_cast<double>(part.bytes) / static_cast<double>(part.tokens);
}

Json part_json(const data::BuiltPart& part) {
  return {{"prefix", part.prefix.string()}, {"documents", part.documents}, {"sequences", part.sequences},
          {"tokens", part.tokens},          {"bytes", part.bytes},         {"bytes_per_token", bytes_per_token(part)},
          {"unigram_entropy", part.entropy}};
}

std::string part_line(const data::BuiltPart& part) {
  return fmt::format("{}.bin, .idx: {} documents, {} tokens of {} text ({:.2f} bytes a token)", part.prefix.string(),
                     part.documents, human_count(static_cast<double>(part.tokens)), human_bytes(part.bytes),
                     bytes_per_token(part));
}

void build(BuildArguments& arguments) {
  if (arguments.tokenizer.empty() && arguments.train_vocab == 0 && !arguments.bytes)
    throw input_error("say how text becomes tokens: --tokenizer FILE, --train-tokenizer VOCAB, or --bytes");
  data::BuildOptions& options = arguments.options;
  options.texts.assign(arguments.texts.begin(), arguments.texts.end());
  options.prefix = data::dataset_prefix(arguments.out);
  options.rule = arguments.documents == "line"         ? data::DocumentRule::line
                 : arguments.documents == "blank-line" ? data::DocumentRule::blank_line
                                                       : data::DocumentRule::form_feed;
  std::string file = arguments.bytes ? std::string(data::bytes_name) : arguments.tokenizer;
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (arguments.train_vocab != 0) {
    file = options.prefix.string() + ".model";
    arguments.training.vocab = arguments.train_vocab;
    options.tokenizer_model = data::train_sentencepiece(options.texts, arguments.training);
    tokenizer = data::load_sentencepiece(options.tokenizer_model, file);
  } else {
    tokenizer = data::load_tokenizer(file);
  }

  options.stop = &stop;
  const data::BuildReport report = [&] {
    const StopOnSignal guard;
    return data::build_dataset(*tokenizer, options);
  }();

  if (arguments.json) {
    print_json({{"tokenizer", tokenizer_json(*tokenizer, file)},
                {"element_type", name_of(report.dtype)},
                {"train", part_json(report.train)},
                {"validation", report.validation ? part_json(*report.validation) : Json()},
                {"empty_documents", report.empty_documents}});
    return;
  }
  print_line(fmt::format("  tokenizer   {} ({})", file, tokenizer->description()));
  print_line(fmt::format("  train       {}", part_line(report.train)));
  if (report.validation) print_line(fmt::format("  validation  {}", part_line(*report.validation)));
  if (report.empty_documents > 0) print_line(fmt::format("  left out    {} empty documents", report.empty_documents));
  print_line(fmt::format(
      "  entropy     {:.3f} nats a token: the loss of a model that knows no more than how often each token comes",
      report.train.entropy));
}

// --- inspect

struct InspectArguments {
  std::string prefix, tokenizer;
  int64_t document = 0;
  int64_t tokens = 24;
  bool json = false;
};

// For a terminal: line ends stay, indented; other control characters become a space.
std::string shown_text(std::string text) {
  std::string shown;
  for (const char c : text) {
    if (c == '\n')
      shown += "\n    ";
    else
      shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return shown;
}

void inspect(const InspectArguments& arguments) {
  const data::MegatronFile file(arguments.prefix);
  const data::MegatronIndex& index = file.index();
  const std::unique_ptr<data::Tokenizer> tokenizer =
      arguments.tokenizer.empty() ? nullptr : data::load_tokenizer(arguments.tokenizer);
  const int64_t vocab = tokenizer ? tokenizer->vocab() : int64_t{std::numeric_limits<int32_t>::max()} + 1;
  const int32_t largest = file.check_ids(vocab);

  std::vector<int32_t> ids;
  int64_t begin = 0, length = 0;
  if (index.documents() > 0 || arguments.document != 0) {
    if (arguments.document < 0 || arguments.document >= index.documents())
      throw input_error("{}: no document {}: there are {}, counted from 0", file.prefix().string(), arguments.document,
                        index.documents());
    begin = index.document_begin(arguments.document);
    length = index.document_begin(arguments.document + 1) - begin;
    ids.resize(static_cast<size_t>(std::min(length, arguments.tokens)));
    file.read(begin, vocab, ids);
  }
  const std::string text = tokenizer ? tokenizer->decode(ids) : "";

  if (arguments.json) {
    print_json({{"prefix", file.prefix().string()},
                {"element_type", name_of(index.dtype())},
                {"documents", index.documents()},
                {"sequences", index.sequences()},
                {"tokens", index.tokens()},
                {"bin_bytes", file.bin_bytes()},
                {"largest_id", largest},
                {"tokenizer", tokenizer ? tokenizer_json(*tokenizer, arguments.tokenizer) : Json()},
                {"document",
                 {{"number", arguments.document},
                  {"first_token", begin},
                  {"tokens", length},
                  {"ids", ids},
                  {"text", tokenizer ? Json(text) : Json()}}}});
    return;
  }
  print_line(fmt::format("{}: sound", file.prefix().string()));
  print_line(fmt::format("  documents  {}", index.documents()));
  print_line(fmt::format("  sequences  {}", index.sequences()));
  print_line(fmt::format("  tokens     {} of type {}, {}", index.tokens(), name_of(index.dtype()),
                         human_bytes(file.bin_bytes())));
  print_line(fmt::format("  ids        0 to {}{}", largest,
                         tokenizer ? fmt::format(", of {} in {}", vocab, tokenizer->description()) : ""));
  if (index.documents() == 0) return;
  print_line(fmt::format("  document {} begins at token {} and has {}{}", arguments.document, begin, length,
                         static_cast<int64_t>(ids.size()) < length ? fmt::format("; the first {}:", ids.size()) : ":"));
  print_line(fmt::format("    {}", fmt::join(ids, " ")));
  if (tokenizer) print_line(fmt::format("    {}", shown_text(text)));
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("data", "Turn text into tokens to train on, or look at such a dataset");
  verb->require_subcommand(1);

  auto built = std::make_shared<BuildArguments>();
  CLI::App* build_verb = verb->add_subcommand("build", "Write PREFIX.bin and PREFIX.idx (Megatron's format) from text");
  build_verb->add_option("--text", built->texts, "Plain text files, UTF-8")->type_name("FILE")->required();
  build_verb->add_option("--out", built->out, "Name of the dataset, without .bin or .idx")
      ->type_name("PREFIX")
      ->required();
  CLI::Option* given =
      build_verb
          ->add_option("--tokenizer", built->tokenizer, "SentencePiece model file, or a folder with tokenizer.model")
          ->type_name("FILE");
  CLI::Option* trained = build_verb
                             ->add_option("--train-tokenizer", built->train_vocab,
                                          "Train a tokenizer of this many ids on the text; written to PREFIX.model")
                             ->type_name("VOCAB")
                             ->check(CLI::Range(1, 1 << 24));
  CLI::Option* bytes = build_verb->add_flag("--bytes", built->bytes, "Take the bytes of the text as tokens");
  given->excludes(trained, bytes);
  trained->excludes(bytes);
  build_verb
      ->add_option("--documents", built->documents,
                   "Where a document ends: at a form feed, a blank line, or a line end")
      ->check(CLI::IsMember({"form-feed", "blank-line", "line"}))
      ->capture_default_str();
  build_verb
      ->add_option("--validation", built->options.validation,
                   "Share of the text to split off as PREFIX_validation, spread evenly over it")
      ->type_name("FRACTION");
  build_verb
      ->add_option("--piece", built->options.piece_bytes,
                   "Bytes at which a long document is cut into several sequences")
      ->type_name("BYTES")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 30))
      ->capture_default_str();
  build_verb
      ->add_option("--sample", built->training.sample_bytes,
                   "About how much of the text to train the tokenizer on (default: 512 for each id)")
      ->type_name("BYTES")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->needs(trained);
  build_verb->add_option("--seed", built->training.seed, "Which lines that sample takes")->needs(trained);
  add_json(*build_verb, built->json);
  build_verb->callback([built] { build(*built); });

  auto inspected = std::make_shared<InspectArguments>();
  CLI::App* inspect_verb =
      verb->add_subcommand("inspect", "Check a dataset from end to end; print what it holds and one document");
  inspect_verb->add_option("PREFIX", inspected->prefix, "Dataset, with or without .bin or .idx")->required();
  inspect_verb
      ->add_option("--tokenizer", inspected->tokenizer,
                   "Tokenizer to check the ids against and to read the text: a file, or bytes")
      ->type_name("FILE");
  inspect_verb->add_option("--document", inspected->document, "Which document to print, from 0")
      ->type_name("N")
      ->capture_default_str();
  inspect_verb->add_option("--tokens", inspected->tokens, "How many of its tokens")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  add_json(*inspect_verb, inspected->json);
  inspect_verb->callback([inspected] { inspect(*inspected); });
}

}  // namespace strata::cli
