#include "cli/verify_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "core/error.h"
#include "data/tokenizer.h"
#include "data/tokenizer_check.h"
#include "files/atomic_file.h"
#include "files/json.h"

namespace strata::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string folder, tokenizer, encodings, text;
  int64_t show = 5;
  double seconds = 1;
  bool json = false;
};

// What differs, from a little before the first difference on.
std::string first_difference(const data::TokenizerMismatch& mismatch) {
  if (mismatch.decoding) return fmt::format("decoded as {}", files::shown(mismatch.decoded, 200));
  constexpr size_t before = 2, most = 8;
  const auto [expected, got] =
      std::mismatch(mismatch.expected.begin(), mismatch.expected.end(), mismatch.got.begin(), mismatch.got.end());
  const auto at = static_cast<size_t>(expected - mismatch.expected.begin());
  const auto shown = [&](const std::vector<int32_t>& ids) {
    const size_t begin = at > before ? at - before : 0, end = std::min(ids.size(), at + most);
    std::string list = begin > 0 ? "... " : "";
    list += fmt::format(
        "{}", fmt::join(ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end), " "));
    return list + (end < ids.size() ? " ..." : "");
  };
  return fmt::format("id {}: expected [{}], got [{}]", at, shown(mismatch.expected), shown(mismatch.got));
}

void verify_tokenizer(const Arguments& arguments) {
  namespace fs = std::filesystem;
  const std::string path = arguments.tokenizer.empty() ? arguments.folder : arguments.tokenizer;
  const fs::path encodings =
      arguments.encodings.empty() ? fs::path(arguments.folder) / "encodings.json" : fs::path(arguments.encodings);
  const auto tokenizer = data::load_tokenizer(path);
  std::error_code error;
  if (!fs::exists(encodings, error))
    throw input_error(
        "{}: not there; it is to hold the token ids to compare with: [{{\"text\": \"...\", \"ids\": [...]}}, ...]",
        encodings.string());
  const std::vector<data::ReferenceEncoding> reference = data::read_encodings(encodings);
  const data::TokenizerCheck check = data::check_tokenizer(*tokenizer, reference);
  const std::string text = arguments.text.empty() ? data::prose_of(reference) : files::read_text(arguments.text);
  const data::TokenizerSpeed speed = data::measure_tokenizer(*tokenizer, text, arguments.seconds);
  const double tokens_per_s = speed.seconds > 0 ? static_cast<double>(speed.tokens) / speed.seconds : 0;
  const double bytes_per_s = speed.seconds > 0 ? static_cast<double>(speed.bytes) / speed.seconds : 0;
  const size_t show = std::min(static_cast<size_t>(arguments.show), check.mismatches.size());

  if (arguments.json) {
    Json mismatches = Json::array();
    for (size_t i = 0; i < show; ++i) {
      const data::TokenizerMismatch& m = check.mismatches[i];
      mismatches.push_back({{"index", m.index},
                            {"what", m.decoding ? "decoding" : "ids"},
                            {"text", m.text},
                            {"expected", m.expected},
                            {"got", m.got},
                            {"decoded", m.decoded}});
    }
    print_json({{"folder", arguments.folder},
                {"tokenizer", tokenizer->description()},
                {"vocab", tokenizer->vocab()},
                {"exact", tokenizer->exact()},
                {"end_of_document", tokenizer->end_of_document() ? Json(*tokenizer->end_of_document()) : Json()},
                {"texts", check.texts},
                {"tokens", check.tokens},
                {"same_ids", check.same_ids},
                {"given_back", check.given_back},
                {"normalised", check.normalised},
                {"passed", check.passed()},
                {"mismatches", mismatches},
                {"tokens_per_s", tokens_per_s},
                {"bytes_per_s", bytes_per_s}});
  } else {
    print_line(
        fmt::format("{}: {}{}", path, tokenizer->description(), tokenizer->exact() ? ", gives every text back" : ""));
    print_line(fmt::format("  ids       {} of {} texts as in {}", check.same_ids, check.texts, encodings.string()));
    print_line(fmt::format("  decoding  {} texts given back{}", check.given_back,
                           check.normalised > 0 ? fmt::format(", {} in normal form", check.normalised) : ""));
    if (speed.tokens > 0)
      print_line(fmt::format("  speed     {:.2f} million tokens/s, {:.1f} MB/s on one core, {:.2f} bytes a token ({})",
                             tokens_per_s * 1e-6, bytes_per_s * 1e-6,
                             static_cast<double>(speed.bytes) / static_cast<double>(speed.tokens),
                             arguments.text.empty() ? "the texts' prose, repeated" : arguments.text));
    for (size_t i = 0; i < show; ++i) {
      const data::TokenizerMismatch& m = check.mismatches[i];
      print_line(fmt::format("  text {}: {}", m.index, files::shown(m.text, 200)));
      print_line(fmt::format("    {}", first_difference(m)));
    }
    if (check.mismatches.size() > show) print_line(fmt::format("  and {} more", check.mismatches.size() - show));
    print_line(check.passed() ? "all is the same" : "something differs");
  }
  if (!check.passed()) throw Exit{static_cast<int>(Fault::run)};
}

}  // namespace

void add_verify_tokenizer(CLI::App& verify) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = verify.add_subcommand(
      "tokenizer", "A tokenizer against token ids from elsewhere; also that decoding gives texts back, and its speed");
  verb->add_option("FOLDER", arguments->folder, "The tokenizer's files and encodings.json: [{\"text\", \"ids\"}, ...]")
      ->required();
  verb->add_option("--tokenizer", arguments->tokenizer, "The tokenizer, if it is elsewhere")->type_name("FILE");
  verb->add_option("--encodings", arguments->encodings, "The texts and ids, if they are elsewhere")->type_name("FILE");
  verb->add_option("--text", arguments->text,
                   "Text to measure the speed with (default: prose among the texts, repeated)")
      ->type_name("FILE");
  verb->add_option("--seconds", arguments->seconds, "How long to measure")->check(CLI::Range(0.0, 3600.0));
  verb->add_option("--show", arguments->show, "How many differences to print")->check(CLI::Range(0, 1 << 30));
  add_json(*verb, arguments->json);
  verb->callback([arguments] { verify_tokenizer(*arguments); });
}

}  // namespace strata::cli
