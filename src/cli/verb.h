#pragma once
// What a verb of the command line is made of, and what verbs share.
//
// To add one: write src/cli/NAME.cpp with add_NAME below, and a line in verbs.inc.
//
//   void add_train(CLI::App& app) {
//     auto arguments = std::make_shared<Arguments>();
//     CLI::App* verb = app.add_subcommand("train", "Train a model");
//     add_job(*verb, arguments->job);
//     add_json(*verb, arguments->json);
//     verb->callback([arguments] { train(*arguments); });
//   }
//
// Exit codes: 0 done; 2 bad input (input_error, or a command line that does not parse); 3 the run failed (run_error, a
// mistake of the program, output that cannot be written); 4 interrupted after a clean save. A verb that has already
// printed its result and is to exit with another code than 0 throws Exit.

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "job/job.h"

namespace strata::cli {

#define STRATA_VERB(name) void add_##name(CLI::App& app);
#include "cli/verbs.inc"
#undef STRATA_VERB

/// Ends the program with this code; all output has been printed.
struct Exit {
  int code = 0;
};

/// FILE and --set, as every verb that works on a job takes them.
struct JobArguments {
  std::string file;
  std::vector<std::string> sets;
  job::Job load() const { return job::load(file, sets); }
};
void add_job(CLI::App& verb, JobArguments& arguments);

/// --json: the verb prints one JSON object and nothing else on standard output. An error prints
/// {"error": message, "code": exit code} there as well.
void add_json(CLI::App& verb, bool& json);

/// --dtype, the compute type; compute_type reads it.
void add_dtype(CLI::App& verb, std::string& dtype);
DType compute_type(const std::string& dtype);

/// --ranks N, for verbs that plan without launching; 0 if not given.
void add_ranks(CLI::App& verb, int64_t& ranks);

/// Prints to standard output; `print_line` ends the line, `print_json` prints an object on lines of its own. Bytes that
/// are no UTF-8 become replacement characters in JSON.
void print(std::string_view text);
void print_line(std::string_view text);
void print_json(const nlohmann::ordered_json& object);

/// Prints an error as the program does, and returns the exit code.
int report_error(const std::string& message, int code, bool json);

/// main's argv, for a verb that may have to start the program over (device::prepare_threads).
char** program_arguments();

/// The whole program: parses the command line, runs the verb, reports errors as "strata: ..." on standard error.
int run(int argc, char** argv);

}  // namespace strata::cli
