// strata data build | inspect

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.h"
#include "core/error.h"
#include "core/text.h"
#include "data/build.h"
#include "data/megatron.h"
#include "data/sentencepiece.h"
#include "data/survey.h"
#include "data/tokenizer.h"
#include "device/threads.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

// --- build

struct BuildArguments {
  std::vector<std::string> texts;
  std::string out, tokenizer, documents = "form-feed", format = "auto";
  int train_vocab = 0, workers = 0;
  bool bytes = false, json = false;
  data::SentencePieceTraining training;
  data::BuildOptions options;
};

std::atomic<bool> stop = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

// While it lives, SIGINT and SIGTERM ask the build to save what it has and to stop; the second one ends it at once.
class StopOnSignal {
 public:
  StopOnSignal() {
    for (size_t i = 0; i < 2; ++i) old_[i] = std::signal(signals[i], on_signal);
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() {
    for (size_t i = 0; i < 2; ++i) std::signal(signals[i], old_[i]);
  }

 private:
  static void on_signal(int signal) {
    if (stop.exchange(true)) {
      std::signal(signal, SIG_DFL);
      std::raise(signal);
    }
  }
  static constexpr int signals[] = {SIGINT, SIGTERM};
  void (*old_[2])(int) = {};
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One line on standard error that renews itself, where that is a terminal.
class ProgressLine {
 public:
  ProgressLine() {
    const char* term = std::getenv("TERM");
    shown_ = ::isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }

  void operator()(const data::BuildProgress& progress) {
    if (first_tokens_ < 0) first_tokens_ = progress.tokens;
    if (!shown_ || since(drawn_at_) < 0.2) return;
    const double seconds = since(start_);
    const std::string line = fmt::format("\r  {:3.0f} %  {} of {} read, {} tokens, {} tokens/s\x1b[K",
                                         100.0 * static_cast<double>(progress.stored_bytes) /
                                             static_cast<double>(std::max<int64_t>(progress.stored_total, 1)),
                                         human_bytes(progress.stored_bytes), human_bytes(progress.stored_total),
                                         human_count(static_cast<double>(progress.tokens)),
                                         human_count(static_cast<double>(progress.tokens - first_tokens_) / seconds));
    std::fputs(line.c_str(), stderr);
    drawn_at_ = Clock::now();
    drawn_ = true;
  }

 private:
  Clock::time_point start_ = Clock::now(), drawn_at_ = start_;
  int64_t first_tokens_ = -1;
  bool shown_ = false, drawn_ = false;
};

Json tokenizer_json(const data::Tokenizer& tokenizer, const std::string& file) {
  return {{"file", file},
          {"description", tokenizer.description()},
          {"vocab", tokenizer.vocab()},
          {"end_of_document", tokenizer.end_of_document() ? Json(*tokenizer.end_of_document()) : Json()},
          {"exact", tokenizer.exact()}};
}

double ratio(int64_t a, int64_t b) { return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b); }

Json part_json(const data::BuiltPart& part) {
  return {{"prefix", part.prefix.string()},
          {"documents", part.documents},
          {"sequences", part.sequences},
          {"tokens", part.tokens},
          {"bytes", part.bytes},
          {"bytes_per_token", ratio(part.bytes, part.tokens)},
          {"unigram_entropy", part.entropy}};
}

std::string part_line(const data::BuiltPart& part) {
  return fmt::format("{}.bin, .idx: {} documents, {} tokens of {} text ({:.2f} bytes a token)", part.prefix.string(),
                     part.documents, human_count(static_cast<double>(part.tokens)), human_bytes(part.bytes),
                     ratio(part.bytes, part.tokens));
}

data::DocumentRule rule_of(const std::string& name) {
  return name == "line"         ? data::DocumentRule::line
         : name == "blank-line" ? data::DocumentRule::blank_line
                                : data::DocumentRule::form_feed;
}

void build(BuildArguments& arguments) {
  if (arguments.tokenizer.empty() && arguments.train_vocab == 0 && !arguments.bytes)
    throw input_error("say how text becomes tokens: --tokenizer FILE, --train-tokenizer VOCAB, or --bytes");
  data::BuildOptions& options = arguments.options;
  options.texts.assign(arguments.texts.begin(), arguments.texts.end());
  options.prefix = data::dataset_prefix(arguments.out);
  options.read.rule = rule_of(arguments.documents);
  if (arguments.format != "auto")
    options.format = arguments.format == "jsonl" ? data::Format::json_lines : data::Format::text;
  options.workers = arguments.workers > 0 ? arguments.workers : device::usable_cores();
  options.stop = &stop;

  std::string file = arguments.bytes ? std::string(data::bytes_name) : arguments.tokenizer;
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (arguments.train_vocab != 0) {
    file = options.prefix.string() + ".model";
    arguments.training.vocab = arguments.train_vocab;
    arguments.training.json_key = options.read.json_key;
    options.tokenizer = fmt::format("trained: {} ids, sample {}, seed {}", arguments.train_vocab,
                                    arguments.training.sample_bytes, arguments.training.seed);
  } else {
    tokenizer = data::load_tokenizer(file);
    options.tokenizer = data::tokenizer_identity(file);
  }

  const auto start = Clock::now();
  const data::BuildReport report = [&] {
    ProgressLine line;
    options.progress = [&line](const data::BuildProgress& progress) { line(progress); };
    data::DatasetBuild dataset(options);
    if (!tokenizer) {
      std::optional<std::string> model = dataset.kept_tokenizer();
      if (!model) {
        model = data::train_sentencepiece(dataset.inputs().files, arguments.training);
        dataset.keep_tokenizer(*model);
      }
      tokenizer = data::load_sentencepiece(*model, file);
    }
    const StopOnSignal guard;
    return dataset.run(*tokenizer);
  }();
  const double seconds = since(start);
  const int64_t made =
      report.train.tokens + (report.validation ? report.validation->tokens : 0) - report.earlier_tokens;
  const double speed = static_cast<double>(made) / std::max(seconds, 1e-9);

  if (arguments.json) {
    print_json({{"tokenizer", tokenizer_json(*tokenizer, file)},
                {"element_type", name_of(report.dtype)},
                {"train", part_json(report.train)},
                {"validation", report.validation ? part_json(*report.validation) : Json()},
                {"empty_documents", report.empty_documents},
                {"input_files", report.input_files},
                {"left_out_files", report.left_out_files},
                {"input_bytes", report.stored_bytes},
                {"workers", options.workers},
                {"seconds", seconds},
                {"resumed_tokens", report.earlier_tokens},
                {"tokens_per_s", speed}});
    return;
  }
  print_line(fmt::format("  tokenizer   {} ({})", file, tokenizer->description()));
  print_line(fmt::format("  train       {}", part_line(report.train)));
  if (report.validation) print_line(fmt::format("  validation  {}", part_line(*report.validation)));
  if (report.empty_documents > 0) print_line(fmt::format("  left out    {} empty documents", report.empty_documents));
  if (report.left_out_files > 0)
    print_line(fmt::format("  left out    {} files in the folders given, whose names do not end as text does",
                           report.left_out_files));
  print_line(fmt::format(
      "  entropy     {:.3f} nats a token: the loss of a model that knows no more than how often each token comes",
      report.train.entropy));
  if (report.earlier_tokens > 0)
    print_line(fmt::format("  went on     from {} tokens that an earlier call had made",
                           human_count(static_cast<double>(report.earlier_tokens))));
  print_line(fmt::format("  speed       {} tokens/s, {} of {} files in {} with {} workers", human_count(speed),
                         human_bytes(report.stored_bytes), report.input_files, human_duration(seconds),
                         options.workers));
}

// --- inspect

struct InspectArguments {
  std::string prefix, tokenizer;
  int64_t document = 0, count = 1, tokens = 24, vocab = 0;
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

Json lengths_json(const data::Lengths& lengths) {
  return {{"empty", lengths.empty}, {"least", lengths.least}, {"p10", lengths.p10},   {"p50", lengths.p50},
          {"p90", lengths.p90},     {"p99", lengths.p99},     {"most", lengths.most}, {"mean", lengths.mean}};
}

std::string lengths_line(const data::Lengths& lengths) {
  return fmt::format("{}: {} to {} tokens, mean {:.1f}; 10 % up to {}, half up to {}, 90 % up to {}, 99 % up to {}{}",
                     lengths.count, lengths.least, lengths.most, lengths.mean, lengths.p10, lengths.p50, lengths.p90,
                     lengths.p99, lengths.empty > 0 ? fmt::format("; {} empty", lengths.empty) : "");
}

struct ShownDocument {
  int64_t number = 0, first_token = 0, tokens = 0;
  std::vector<int32_t> ids;
};

void inspect(const InspectArguments& arguments) {
  const data::MegatronFile file(arguments.prefix);
  const data::MegatronIndex& index = file.index();
  const std::unique_ptr<data::Tokenizer> tokenizer =
      arguments.tokenizer.empty() ? nullptr : data::load_tokenizer(arguments.tokenizer);
  if (tokenizer && arguments.vocab > 0 && tokenizer->vocab() > arguments.vocab)
    throw input_error("--vocab {} is less than the {} ids of {} ({})", arguments.vocab, tokenizer->vocab(),
                      arguments.tokenizer, tokenizer->description());
  const int64_t vocab = tokenizer             ? tokenizer->vocab()
                        : arguments.vocab > 0 ? arguments.vocab
                                              : int64_t{std::numeric_limits<int32_t>::max()} + 1;
  const data::Survey survey = data::survey(file, vocab);

  std::vector<ShownDocument> shown;
  if (index.documents() > 0 || arguments.document != 0) {
    if (arguments.document < 0 || arguments.document >= index.documents())
      throw input_error("{}: no document {}: there are {}, counted from 0", file.prefix().string(), arguments.document,
                        index.documents());
    const int64_t end = arguments.document + std::min(arguments.count, index.documents() - arguments.document);
    for (int64_t d = arguments.document; d < end; ++d) {
      ShownDocument one{d, index.document_begin(d), 0, {}};
      one.tokens = index.document_begin(d + 1) - one.first_token;
      one.ids.resize(static_cast<size_t>(std::min(one.tokens, arguments.tokens)));
      file.read(one.first_token, vocab, one.ids);
      shown.push_back(std::move(one));
    }
  }

  if (arguments.json) {
    Json documents = Json::array();
    for (const ShownDocument& one : shown)
      documents.push_back({{"number", one.number},
                           {"first_token", one.first_token},
                           {"tokens", one.tokens},
                           {"ids", one.ids},
                           {"text", tokenizer ? Json(tokenizer->decode(one.ids)) : Json()}});
    print_json({{"prefix", file.prefix().string()},
                {"element_type", name_of(index.dtype())},
                {"documents", index.documents()},
                {"sequences", index.sequences()},
                {"tokens", index.tokens()},
                {"bin_bytes", file.bin_bytes()},
                {"largest_id", survey.largest_id},
                {"distinct_ids", survey.entropy ? Json(survey.distinct_ids) : Json()},
                {"unigram_entropy", survey.entropy ? Json(*survey.entropy) : Json()},
                {"document_lengths", lengths_json(survey.documents)},
                {"sequence_lengths", lengths_json(survey.sequences)},
                {"vocab", tokenizer || arguments.vocab > 0 ? Json(vocab) : Json()},
                {"tokenizer", tokenizer ? tokenizer_json(*tokenizer, arguments.tokenizer) : Json()},
                {"shown", documents}});
    return;
  }
  print_line(fmt::format("{}: sound", file.prefix().string()));
  print_line(fmt::format("  documents  {}", lengths_line(survey.documents)));
  print_line(fmt::format("  sequences  {}", lengths_line(survey.sequences)));
  print_line(fmt::format("  tokens     {} of type {}, {}", index.tokens(), name_of(index.dtype()),
                         human_bytes(file.bin_bytes())));
  print_line(fmt::format("  ids        0 to {}{}{}", survey.largest_id,
                         survey.entropy ? fmt::format(", {} of them in use", survey.distinct_ids) : "",
                         tokenizer             ? fmt::format(", of {} in {}", vocab, tokenizer->description())
                         : arguments.vocab > 0 ? fmt::format(", of {}", vocab)
                                               : ""));
  if (survey.entropy) print_line(fmt::format("  entropy    {:.3f} nats a token, taken one by one", *survey.entropy));
  for (const ShownDocument& one : shown) {
    print_line(fmt::format(
        "  document {} begins at token {} and has {}{}", one.number, one.first_token, one.tokens,
        static_cast<int64_t>(one.ids.size()) < one.tokens ? fmt::format("; the first {}:", one.ids.size()) : ":"));
    print_line(fmt::format("    {}", fmt::join(one.ids, " ")));
    if (tokenizer) print_line(fmt::format("    {}", shown_text(tokenizer->decode(one.ids))));
  }
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("data", "Turn text into tokens to train on, or look at such a dataset");
  verb->require_subcommand(1);

  auto built = std::make_shared<BuildArguments>();
  CLI::App* build_verb = verb->add_subcommand("build", "Write PREFIX.bin and PREFIX.idx (Megatron's format) from text");
  build_verb
      ->add_option("--text", built->texts,
                   "Text files (UTF-8), JSON lines, either compressed (gzip, zstd), or folders of such")
      ->type_name("FILE")
      ->required();
  build_verb->add_option("--out", built->out, "Name of the dataset, without .bin or .idx")
      ->type_name("PREFIX")
      ->required();
  CLI::Option* given =
      build_verb->add_option("--tokenizer", built->tokenizer, "A tokenizer's file, or the folder it is in")
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
                   "Where a document of plain text ends: at a form feed, a blank line, or a line end")
      ->check(CLI::IsMember({"form-feed", "blank-line", "line"}))
      ->capture_default_str();
  build_verb
      ->add_option(
          "--format", built->format,
          "What the files are: by their names (.jsonl, .ndjson and .json are JSON lines), or all text or jsonl")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}))
      ->capture_default_str();
  build_verb->add_option("--json-key", built->options.read.json_key, "Where in an object of JSON lines the text is")
      ->type_name("KEY")
      ->capture_default_str();
  build_verb
      ->add_option("--validation", built->options.validation,
                   "Share of the text to split off as PREFIX_validation, spread evenly over it")
      ->type_name("FRACTION");
  build_verb
      ->add_option("--piece", built->options.read.piece_bytes,
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
  build_verb->add_option("--workers", built->workers, "Threads that tokenise (default: one a core)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  build_verb
      ->add_option("--save-every", built->options.save_every,
                   "Bytes of text after each of which a build that is killed need not begin anew")
      ->type_name("BYTES")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->capture_default_str();
  build_verb->add_flag("--restart", built->options.restart, "Begin anew whatever an unfinished build has left");
  add_json(*build_verb, built->json);
  build_verb->callback([built] { build(*built); });

  auto inspected = std::make_shared<InspectArguments>();
  CLI::App* inspect_verb =
      verb->add_subcommand("inspect", "Check a dataset from end to end; print what it holds and some of its documents");
  inspect_verb->add_option("PREFIX", inspected->prefix, "Dataset, with or without .bin or .idx")->required();
  inspect_verb
      ->add_option("--tokenizer", inspected->tokenizer,
                   "Tokenizer to check the ids against and to read the text: a file, or bytes")
      ->type_name("FILE");
  inspect_verb->add_option("--vocab", inspected->vocab, "Check that all ids are below this")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  inspect_verb->add_option("--document", inspected->document, "Which document to print, from 0")
      ->type_name("N")
      ->capture_default_str();
  inspect_verb->add_option("--count", inspected->count, "How many documents from there on")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  inspect_verb->add_option("--tokens", inspected->tokens, "How many tokens of each")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  add_json(*inspect_verb, inspected->json);
  inspect_verb->callback([inspected] { inspect(*inspected); });
}

}  // namespace strata::cli
