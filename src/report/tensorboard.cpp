#include "report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <system_error>

#include "core/error.h"
#include "report/run_files.h"

namespace strata::report {

namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The name by which file names tell machines apart; only characters that are safe in one.
std::string host_name() {
  std::array<char, 256> buffer{};
  if (::gethostname(buffer.data(), buffer.size() - 1) != 0 || buffer[0] == '\0') return "localhost";
  std::string name = buffer.data();
  for (char& c : name) {
    const bool safe =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '_';
    if (!safe) c = '_';
  }
  return name;
}

// Protobuf's wire format: a field is a varint of (number << 3 | type), then the value.

template <typename T>
void put_fixed(std::string& out, T bits) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(bits >> (8 * i) & 0xFF);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_integer(std::string& out, uint32_t field, int64_t value) {
  put_varint(out, field << 3 | 0);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_double(std::string& out, uint32_t field, double value) {
  put_varint(out, field << 3 | 1);
  put_fixed(out, std::bit_cast<uint64_t>(value));
}

void put_bytes(std::string& out, uint32_t field, std::string_view value) {
  put_varint(out, field << 3 | 2);
  put_varint(out, value.size());
  out += value;
}

void put_float(std::string& out, uint32_t field, float value) {
  put_varint(out, field << 3 | 5);
  put_fixed(out, std::bit_cast<uint32_t>(value));
}

/// Event's wall_time (1) and step (2), which every event begins with.
std::string begin_event(double seconds, int64_t step) {
  std::string event;
  put_double(event, 1, seconds);
  put_integer(event, 2, step);
  return event;
}

/// A checksum stored beside what it covers is masked, so that a checksum over both is no trivial one.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8u; }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1u) != 0 ? value >> 1 ^ 0x82F63B78u : value >> 1;
      t[i] = value;
    }
    return t;
  }();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xFFu];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, double seconds, int64_t first_step) {
  const std::filesystem::path path =
      folder / fmt::format("events.out.tfevents.{}.{}", static_cast<int64_t>(std::floor(seconds)), host_name());
  std::filesystem::path unused = path;
  for (int number = 1; std::filesystem::exists(unused); ++number) unused = fmt::format("{}.{}", path.string(), number);
  file_ = std::make_unique<AppendFile>(unused, AppendFile::Open::create);

  std::string version;
  put_double(version, 1, seconds);
  put_bytes(version, 3, "brain.Event:2");
  write_record(version);

  std::string session;
  put_integer(session, 1, 1);  // SessionLog.status = START
  std::string restart = begin_event(seconds, first_step + 1);
  put_bytes(restart, 7, session);
  write_record(restart);
}

void EventFile::write(double seconds, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_float(value, 2, scalar.value);
    put_bytes(summary, 1, value);
  }
  std::string event = begin_event(seconds, step);
  put_bytes(event, 5, summary);
  write_record(event);
}

void EventFile::write_record(const std::string& event) {
  std::string record;
  put_fixed<uint64_t>(record, event.size());
  put_fixed(record, masked(crc32c(record)));
  record += event;
  put_fixed(record, masked(crc32c(event)));
  file_->write(record);
}

void TensorBoard::on_start(const train::RunStart& start) {
  level_names_ = start.program == nullptr ? std::vector<std::string>() : start.program->level_names;
  start_ = start;
  start_.job = nullptr, start_.program = nullptr;
  const std::filesystem::path folder = tensorboard_folder(start.folder);
  if (start.first_step == 0) move_aside(folder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw run_error("{}: cannot create this folder: {}", folder.string(), error.message());
  events_ = std::make_unique<EventFile>(folder, unix_seconds(), start.first_step);
}

void TensorBoard::on_step(const train::StepReport& step) {
  const Rates speed = rates(start_, step);
  const std::array scalars = {
      Scalar{"train/loss", static_cast<float>(step.loss)},
      Scalar{"train/grad_norm", static_cast<float>(step.grad_norm)},
      Scalar{"train/clip_factor", static_cast<float>(step.clip_factor)},
      Scalar{"train/skipped", step.skipped ? 1.0f : 0.0f},
      Scalar{"train/learning_rate", static_cast<float>(step.learning_rate)},
      Scalar{"train/loss_scale", static_cast<float>(step.loss_scale)},
      Scalar{"speed/tokens_per_s", static_cast<float>(speed.tokens)},
      Scalar{"speed/model_tflops", static_cast<float>(speed.model_flops / 1e12)},
      Scalar{"speed/hardware_tflops", static_cast<float>(speed.hardware_flops / 1e12)},
      Scalar{"memory/allocated_bytes", static_cast<float>(step.allocated_bytes)},
      Scalar{"memory/resident_bytes", static_cast<float>(step.resident_bytes)},
  };
  // What is not known is left out, not drawn as -1.
  events_->write(unix_seconds(), step.step,
                 std::span(scalars).first(scalars.size() - (step.resident_bytes < 0 ? 1 : 0)));
}

void TensorBoard::on_validation(const train::ValidationReport& validation) {
  const Scalar loss{"validation/loss", static_cast<float>(validation.loss)};
  events_->write(unix_seconds(), validation.step, std::span(&loss, 1));
}

void TensorBoard::on_end(const train::RunEnd& end) {
  if (start_.ranks > 1) {
    std::vector<std::string> tags;
    for (const std::string& level : level_names_) tags.push_back("traffic/" + level + "_bytes");
    std::vector<Scalar> scalars;
    for (size_t level = 0; level < tags.size(); ++level)
      scalars.push_back({tags[level], static_cast<float>(end.sent.bytes(static_cast<int32_t>(level)))});
    if (!scalars.empty()) events_->write(unix_seconds(), end.step, scalars);
  }
  events_->finish();
}

}  // namespace strata::report
