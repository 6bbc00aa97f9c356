#include "report/metrics.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/error.h"
#include "job/placement.h"
#include "report/ledger.h"
#include "report/run_files.h"

namespace strata::report {

namespace {

using Json = nlohmann::ordered_json;

void put(Json& record, const std::string& key, double value) {
  record[key] = value;
  if (std::isfinite(value)) return;
  record[key] = nullptr;
  record[key + "_text"] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json count_or_null(int64_t count) { return count < 0 ? Json(nullptr) : Json(count); }

void write(AppendFile& file, Json& record) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  record["time"] = static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1e3;
  // Paths need not be UTF-8; JSON must.
  file.write(record.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

Json levels_json(const step::Program* program) {
  if (program == nullptr || program->level_names.empty()) return nullptr;
  Json levels = Json::array();
  for (size_t level = 0; level < program->level_names.size(); ++level)
    levels.push_back({{"name", program->level_names[level]}, {"width", program->widths[level]}});
  return levels;
}

Json placement_json(const job::Job& job, const step::Program* program) {
  if (program == nullptr || program->level_names.empty()) return nullptr;
  const job::Sharding sharding = job::resolve_placement(job, program->level_names);
  const auto level = [&](int reach) {
    return reach == 0 ? Json(nullptr) : Json(program->level_names[static_cast<size_t>(reach - 1)]);
  };
  return {{"weights", level(sharding.weights)},
          {"secondary", level(sharding.secondary)},
          {"gradients", level(sharding.gradients)},
          {"optimizer", level(sharding.optimizer)},
          {"wires", job::describe_wires(sharding, program->level_names)}};
}

void put(Json& record, const LedgerRow& row) {
  record["bytes"] = row.sent.bytes;
  record["messages"] = row.sent.messages;
  record["planned_bytes"] = row.planned.bytes;
  record["planned_messages"] = row.planned.messages;
}

}  // namespace

Metrics::Metrics(Peak peak) : peak_(std::move(peak)) {}

void Metrics::on_start(const train::RunStart& start) {
  STRATA_CHECK(start.job != nullptr);
  level_names_ = start.program == nullptr ? std::vector<std::string>() : start.program->level_names;
  start_ = start;
  start_.job = nullptr, start_.program = nullptr;
  const std::filesystem::path path = metrics_file(start.folder);
  if (start.first_step == 0) move_aside(path);
  file_ = std::make_unique<AppendFile>(path, AppendFile::Open::append_lines);

  const job::Job& job = *start.job;
  const model::Config& model = job.model;
  Json record;
  record["record"] = "start";
  record["format"] = 1;
  record["job_digest"] = fmt::format("{:016x}", job::digest(job));
  record["model"] = {{"preset", model.preset.empty() ? Json(nullptr) : Json(model.preset)},
                     {"family", model::name_of(model.family)},
                     {"layers", model.layers},
                     {"hidden", model.hidden},
                     {"heads", model.heads},
                     {"kv_heads", model.kv_heads},
                     {"ffn", model.ffn},
                     {"vocab", model.vocab}};
  record["parameters"] = start.parameters;
  record["batch"] = {{"global", start.batch.global},
                     {"micro", start.batch.micro},
                     {"accumulation", start.batch.accumulation},
                     {"data_parallel", start.batch.data_parallel},
                     {"ranks", start.batch.ranks},
                     {"tensor", start.batch.tensor},
                     {"pipeline", start.batch.pipeline},
                     {"sequence", job.batch.sequence}};
  record["ranks"] = start.ranks;
  record["levels"] = levels_json(start.program);
  record["placement"] = placement_json(job, start.program);
  record["steps"] = job.run.steps;
  record["first_step"] = start.first_step;
  record["device"] = start.device;
  record["folder"] = start.folder.string();
  record["memory_planned"] = start.planned_bytes;
  Json flops;
  put(flops, "model_per_token", start.model_flops_per_token);
  flops["model_formula"] = model_flops_formula;
  put(flops, "hardware_per_step", start.program_flops);
  put(flops, "hardware_recompute_per_step", start.program_recompute_flops);
  flops["hardware_formula"] = hardware_flops_formula;
  flops["peak_tflops"] = peak_.known() ? Json(peak_.flops / 1e12) : Json(nullptr);
  flops["peak_name"] = peak_.known() ? Json(peak_.name) : Json(nullptr);
  record["flops"] = std::move(flops);
  record["job"] = job::to_json(job);
  write(*file_, record);
}

void Metrics::on_step(const train::StepReport& step) {
  const Rates speed = rates(start_, step);
  Json record;
  record["record"] = "step";
  record["step"] = step.step;
  put(record, "loss", step.loss);
  put(record, "grad_norm", step.grad_norm);
  put(record, "clip_factor", step.clip_factor);
  record["skipped"] = step.skipped;
  put(record, "learning_rate", step.learning_rate);
  put(record, "loss_scale", step.loss_scale);
  record["tokens"] = step.tokens;
  record["total_tokens"] = step.total_tokens;
  put(record, "tokens_per_s", speed.tokens);
  put(record, "seconds", step.seconds);
  put(record, "model_tflops", speed.model_flops / 1e12);
  put(record, "hardware_tflops", speed.hardware_flops / 1e12);
  record["memory_planned"] = start_.planned_bytes;
  record["memory_allocated"] = step.allocated_bytes;
  record["memory_resident"] = count_or_null(step.resident_bytes);
  record["allocations"] = count_or_null(step.allocations);
  record["library_allocations"] = count_or_null(step.library_allocations);
  write(*file_, record);
}

void Metrics::on_validation(const train::ValidationReport& validation) {
  Json record;
  record["record"] = "validation";
  record["step"] = validation.step;
  put(record, "loss", validation.loss);
  record["tokens"] = validation.tokens;
  put(record, "seconds", validation.seconds);
  write(*file_, record);
}

void Metrics::on_saved(int64_t step, const std::filesystem::path& folder) {
  Json record;
  record["record"] = "saved";
  record["step"] = step;
  record["folder"] = folder.string();
  write(*file_, record);
}

void Metrics::on_end(const train::RunEnd& end) {
  const std::vector<LedgerRow> rows = ledger(end, level_names_);
  if (start_.ranks > 1) {
    Json traffic = {{"record", "traffic"}, {"step", end.step}, {"entries", Json::array()}};
    for (const LedgerRow& row : rows) {
      Json entry = {{"level", row.level}, {"purpose", row.purpose}, {"wire", row.wire}};
      put(entry, row);
      traffic["entries"].push_back(std::move(entry));
    }
    put(traffic, total(rows));
    traffic["as_planned"] = ledger_differences(rows).empty();
    write(*file_, traffic);
  }
  Json record;
  record["record"] = "end";
  record["step"] = end.step;
  put(record, "seconds", end.seconds);
  record["interrupted"] = end.interrupted;
  record["saved"] = end.saved.empty() ? Json(nullptr) : Json(end.saved.string());
  write(*file_, record);
  file_->finish();
}

}  // namespace strata::report
