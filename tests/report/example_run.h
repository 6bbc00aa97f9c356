#pragma once
// A made-up run for the listeners: a folder of its own, a job, and reports with round numbers.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "train/observer.h"

namespace strata::report {

/// A fresh folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "strata-report-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  EXPECT_TRUE(file) << path;
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// While it lives no file grows past `bytes`: a full disk as a process sees it, partial writes included.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

/// 8 sequences of 128 tokens a step on 2 ranks, 1 MFLOP of model a token, 700 MFLOP of program a step and rank.
struct ExampleRun {
  job::Job job;
  train::RunStart start;

  explicit ExampleRun(const std::filesystem::path& folder, int64_t steps = 100, int64_t first_step = 0) {
    model::Config& model = job.model;
    model.layers = 2, model.hidden = 64, model.heads = model.kv_heads = 4, model.head_dim = 16, model.ffn = 256;
    model.vocab = 500, model.sequence = 128;
    job.batch = {.global = 8, .micro = 2, .sequence = 128};
    job.run.steps = steps;
    job.run.log_every = 10;
    start = {.job = &job,
             .batch = {.global = 8, .micro = 2, .accumulation = 2, .data_parallel = 2, .ranks = 2},
             .folder = folder,
             .parameters = 131072,
             .device = "cpu (made up, 2 threads)",
             .first_step = first_step,
             .planned_bytes = 123'000'000,
             .model_flops_per_token = 1e6,
             .program_flops = 700e6,
             .program_recompute_flops = 70e6};
  }
  ExampleRun(const ExampleRun&) = delete;

  /// One step of 0.5 s.
  static train::StepReport step(int64_t number) {
    return {.step = number,
            .tokens = 1024,
            .total_tokens = 1024 * number,
            .seconds = 0.5,
            .loss = 3.25,
            .grad_norm = 2,
            .clip_factor = 0.5,
            .learning_rate = 3e-4,
            .allocated_bytes = 123'000'000,
            .resident_bytes = 140'000'000,
            .allocations = 0,
            .library_allocations = 7};
  }
};

/// Runs `call`, which must throw an Error of this kind; its message.
template <typename Call>
std::string message_of(Fault fault, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), fault) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace strata::report
