#pragma once
// A training job: everything a run is told, as one value. Read from strict TOML and --set options, checked, defaults
// and presets merged in; written back as TOML that reads to an equal job.
//
// The keys, their types, defaults and meaning are one table: see keys.h (`strata config keys` prints it).

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "machine/levels.h"
#include "model/config.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"

namespace strata::job {

/// What is remade in the backward pass instead of kept: nothing, attention, or all of a layer.
enum class Recompute : uint8_t { none, selective, full };
enum class Pipeline : uint8_t { gpipe, one_f_one_b, interleaved, zb_h1, zb_v };
/// How values travel. `full`: weights in the compute type, gradients in precision.gradients.
enum class Wire : uint8_t { full, fp32, bf16, int8, int4 };
enum class Rounding : uint8_t { nearest, stochastic };
enum class DecayOn : uint8_t { matrices, all };
/// `levels`: hop by hop over the levels of the machine. `flat`: one ring over all ranks that take part, as published.
enum class Collectives : uint8_t { levels, flat };

std::string_view name_of(Recompute);  ///< the spellings of the config: "none", "selective", "full"
std::string_view name_of(Pipeline);   ///< "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"
std::string_view name_of(Wire);       ///< "full", "fp32", ...
std::string_view name_of(Rounding);
std::string_view name_of(DecayOn);
std::string_view name_of(Collectives);
/// "fp32", "bf16", "fp16": what configs call the three types that a model can compute in.
std::string_view precision_name(DType type);

/// What a transfer is for; wires and hops are chosen for each.
enum class Purpose : uint8_t {
  weights,    ///< gathers of weights for compute (and of the secondary copy)
  gradients,  ///< reduction after each unit's backward, up to the gradients' level
  reduction,  ///< once a step, from the gradients' level outwards
  update,     ///< once a step, gather of new weights from the optimizer's level in to the weights'
};
inline constexpr int purposes = 4;
std::string_view name_of(Purpose);

/// The wire of one purpose as the job gives it: at every level, or at the named ones; the rest as the preset says.
struct WireChoice {
  std::optional<Wire> everywhere;
  std::map<std::string, Wire, std::less<>> at;
  bool operator==(const WireChoice&) const = default;
};

/// Levels joined into one transfer each, innermost first; empty: as the preset says, else one hop a level.
using HopPlan = std::vector<std::vector<std::string>>;

struct Data {
  struct Source {
    std::string path;  ///< prefix of a .bin/.idx pair
    double weight = 1;
    bool operator==(const Source&) const = default;
  };
  std::vector<Source> train;
  std::string validation;  ///< "" = none
  std::string tokenizer;   ///< "" = none
  std::vector<double>
      split;  ///< shares of train for training, validation and, if three, testing; empty = all for training
  bool attention_across_documents = true;  ///< whether tokens see those of earlier documents in their sequence
  bool operator==(const Data&) const = default;
};

struct Batch {
  int64_t global = 0;  ///< sequences a step
  int64_t micro = 1;   ///< sequences of one forward and backward pass on one data-parallel rank
  int64_t sequence = 0;
  bool operator==(const Batch&) const = default;
};

struct Mesh {
  int64_t tensor = 1, pipeline = 1;
  std::vector<machine::Level> levels;                                 ///< empty: from run.machine, else detected
  std::array<std::string, 3> order = {"tensor", "data", "pipeline"};  ///< innermost first
  bool operator==(const Mesh&) const = default;
};

/// Either a preset or the four levels ("none", "all" or a level's name). What they mean on a machine: placement.h.
struct Placement {
  std::string preset = "ddp";  ///< "" when the four levels are given
  std::string weights, secondary, gradients, optimizer;
  std::string level;  ///< for presets that take one (hsdp, mics)
  std::array<WireChoice, purposes> wires;
  int64_t int8_block = 512, int4_block = 128;  ///< elements that share a scale
  Rounding rounding = Rounding::nearest;
  bool error_feedback = false;
  std::array<HopPlan, purposes> hops;
  Collectives collectives = Collectives::levels;
  int64_t resident = 0;               ///< units of at most so many parameters keep whole weights on every rank
  bool reshard_after_forward = true;  ///< else gathered weights wait for the backward
  bool operator==(const Placement&) const = default;
};

struct Schedule {
  Pipeline pipeline = Pipeline::one_f_one_b;
  int64_t chunks = 2;  ///< of each stage, if interleaved
  std::string layout;  ///< which units each chunk holds; "": balanced by cost
  Recompute recompute = Recompute::none;
  int64_t prefetch = 2;        ///< units whose weights may be gathered ahead of use
  int64_t prefetch_bytes = 0;  ///< and at most so many bytes of them at once; 0 = no bound
  int64_t overlap = 1;         ///< units that compute while gradients from before them still travel
  bool operator==(const Schedule&) const = default;
};

struct Precision {
  DType compute = DType::f32;
  DType gradients = DType::f32;  ///< type in which gradients travel on full wires
  optim::LossScaling scaling;    ///< of fp16 runs
  bool operator==(const Precision&) const = default;
};

struct Optimizer {
  std::string name = "adamw";  ///< or "adamw8bit": both moments in 8 bits, block by block
  int64_t block = 256;         ///< elements of 8-bit moments that share a scale
  double lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0;
  DecayOn weight_decay_on = DecayOn::matrices;
  double clip = 1;  ///< largest global gradient norm; 0 = no clipping
  optim::Schedule schedule;
  /// 0 where moments are fp32.
  int64_t moment_block() const { return name == "adamw8bit" ? block : 0; }
  bool operator==(const Optimizer&) const = default;
};

struct Run {
  int64_t steps = 0;
  uint64_t seed = 1234;
  int64_t threads = 1;  ///< per rank; part of the job because a matrix product's bits may depend on it
  struct Save {
    int64_t every = 0;  ///< steps; 0 = at the end only
    int64_t keep = 3;
    std::string folder = "checkpoints";  ///< inside Run::folder unless absolute
    bool operator==(const Save&) const = default;
  } save;
  double timeout = 600;         ///< seconds that a rank waits for others before it gives up
  bool thread_a_level = false;  ///< one thread drives each level's transfers, instead of one for all
  std::string machine;          ///< name or path of a machine file; "" = detect
  std::string folder = "run";   ///< logs, metrics and checkpoints; relative to the working directory
  int64_t log_every = 10;       ///< steps
  std::vector<int64_t> trace;   ///< steps, from 1, whose timeline is written to the run's folder
  struct Validate {
    int64_t every = 0;  ///< steps; 0 = never
    int64_t batches = 10;
    bool operator==(const Validate&) const = default;
  } validate;
  bool operator==(const Run&) const = default;
};

struct Job {
  model::Config model;
  std::string
      model_from;  ///< Hugging Face folder that the model's dimensions come from, and its first weights; "" = none
  Data data;
  Batch batch;
  Mesh mesh;
  Placement placement;
  Schedule schedule;
  Precision precision;
  Optimizer optimizer;
  Run run;
  bool operator==(const Job&) const = default;
};

/// Reads a job file and merges `sets`, each "a.b=c" with a TOML value or a bare string; later ones win. Paths in the
/// file are relative to its folder, paths in `sets` to the working directory; both come out absolute, except run.folder
/// (relative to the working directory) and run.save.folder (inside it), which stay as given. Throws an input error with
/// file and line (or the --set option), the key, and what to do.
Job load(const std::filesystem::path& path, std::span<const std::string> sets = {});

/// The same from text at hand; `path` names it in errors and anchors its relative paths, and need not exist.
Job parse(std::string_view text, const std::filesystem::path& path, std::span<const std::string> sets = {});

/// The dimensions of a preset: a name in models/, or the path of such a file. Its search path: keys.h.
model::Config load_preset(const std::string& name_or_path);

/// The merged job as TOML, every key with its value, in the order of the table of keys; parses back to an equal job.
std::string show(const Job& job);

/// The same keys and values as a JSON object of objects.
nlohmann::ordered_json to_json(const Job& job);

/// xxHash (XXH64) of show(): equal jobs have equal digests.
uint64_t digest(const Job& job);

}  // namespace strata::job
