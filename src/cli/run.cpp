#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "core/error.h"
#include "core/text.h"

namespace strata::cli {

void add_job(CLI::App& verb, JobArguments& arguments) {
  verb.add_option("FILE", arguments.file, "Job file (TOML)")->required();
  // One value an option: "--set a=1 b=2" would otherwise swallow what follows.
  verb.add_option("--set", arguments.sets, "Set a key of the job, over the file: a.b=value (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_json(CLI::App& verb, bool& json) { verb.add_flag("--json", json, "Print one JSON object"); }

void add_dtype(CLI::App& verb, std::string& dtype) {
  verb.add_option("--dtype", dtype, "Type of weights and activations")->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
}

DType compute_type(const std::string& dtype) {
  return dtype == "bf16" ? DType::bf16 : dtype == "fp16" ? DType::f16 : DType::f32;
}

void add_ranks(CLI::App& verb, int64_t& ranks) {
  verb.add_option("--ranks", ranks, "Plan for this many ranks")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_line(std::string_view text) {
  print(text);
  print("\n");
}

void print_json(const nlohmann::ordered_json& object) {
  print_line(object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int report_error(const std::string& message, int code, bool json) {
  if (json) print_json({{"error", message}, {"code", code}});
  std::fflush(stdout);
  std::fprintf(stderr, "strata: %s\n", message.c_str());
  return code;
}

namespace {

char** arguments_of_main = nullptr;

/// The subcommand that the command line got to.
const CLI::App& deepest(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : deepest(*parsed.back());
}

/// A clearer message where CLI11's says only that something was not expected.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error, int argc, const char* const* argv) {
  const CLI::App& verb = deepest(app);
  std::string help = "strata";
  std::vector<std::string> verbs, options;
  for (const CLI::App* each : verb.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(each->get_name());
  for (const CLI::Option* each : verb.get_options())
    for (const std::string& name : each->get_lnames()) options.push_back("--" + name);
  std::string names;
  for (const CLI::App* at = &verb; at->get_parent(); at = at->get_parent()) names = " " + at->get_name() + names;
  help += names + " --help";

  if (dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error)) {
    for (const std::string& word : verb.remaining()) {
      const std::string name = word.substr(0, word.find('='));
      if (word.starts_with("-"))
        return fmt::format("unknown option {}{}; see {}", name, did_you_mean(name, options), help);
      if (!verbs.empty()) return fmt::format("unknown verb {}{}; see {}", word, did_you_mean(word, verbs), help);
      return fmt::format("unexpected argument {}; see {}", word, help);
    }
    // A missing verb is reported before the word that stands in its place.
    if (!verbs.empty() && verb.get_subcommands().empty() && dynamic_cast<const CLI::RequiredError*>(&error)) {
      for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (!word.starts_with("-") && word != verb.get_name() && !names.ends_with(" " + word))
          return fmt::format("unknown verb {}{}; see {}", word, did_you_mean(word, verbs), help);
      }
      std::string list;
      for (const std::string& each : verbs) list += (list.empty() ? "" : ", ") + each;
      return fmt::format("a verb is wanted: {}; see {}", list, help);
    }
  }
  return fmt::format("{}; see {}", error.what(), help);
}

int guarded(int argc, const char* const* argv, bool json) {
  CLI::App app("Trains GPT-style language models, sharded along the levels of a machine", "strata");
  app.require_subcommand(1);
  app.set_version_flag("--version", "strata " STRATA_VERSION);
  app.footer("Exit codes: 0 done, 2 bad input, 3 the run failed, 4 interrupted after a clean save.");
#define STRATA_VERB(name) add_##name(app);
#include "cli/verbs.inc"
#undef STRATA_VERB
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return report_error(parse_message(app, error, argc, argv), static_cast<int>(Fault::input), json);
  }
}

}  // namespace

char** program_arguments() { return arguments_of_main; }

int run(int argc, char** argv) {
  arguments_of_main = argv;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no further is an error of the write, which says so
  bool json = false;
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) json |= std::string_view(argv[i]) == "--json";
  int code = 0;
  try {
    code = guarded(argc, argv, json);
  } catch (const Exit& exit) {
    code = exit.code;
  } catch (const Error& error) {
    code = report_error(error.what(), error.exit_code(), json);
  } catch (const std::bad_alloc&) {
    code = report_error("out of memory", static_cast<int>(Fault::run), json);
  } catch (const InternalError& error) {
    code = report_error(error.what(), static_cast<int>(Fault::run), json);
  } catch (const std::exception& error) {
    code = report_error(fmt::format("internal error: {}", error.what()), static_cast<int>(Fault::run), json);
  }
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && code == 0) {
    std::fputs("strata: cannot write to standard output\n", stderr);
    code = static_cast<int>(Fault::run);
  }
  return code;
}

}  // namespace strata::cli
