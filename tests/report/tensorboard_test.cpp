#include "report/tensorboard.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "report/example_run.h"
#include "report/run_files.h"

namespace strata::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

/// CRC-32C one bit at a time, from its definition: polynomial 0x1EDC6F41, bits reflected.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = (static_cast<uint8_t>(byte) >> bit) & 1u;
      const uint32_t out = (crc ^ in) & 1u;
      crc >>= 1;
      if (out != 0) crc ^= 0x82F63B78u;
    }
  return ~crc;
}

/// One field of a protobuf message: a number or bytes.
struct Field {
  uint64_t number = 0;
  uint64_t type = 0;
  uint64_t value = 0;
  std::string bytes;
};

/// An independent reader: throws on anything that does not parse to the last byte.
struct Reader {
  std::string_view rest;

  std::string_view take(size_t count) {
    if (count > rest.size()) throw std::runtime_error("message ends early");
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }
  uint64_t fixed(size_t count) {
    uint64_t value = 0;
    const std::string_view bytes = take(count);
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7Fu) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("endless varint");
  }
  Field field() {
    Field f;
    const uint64_t key = varint();
    f.number = key / 8, f.type = key % 8;
    if (f.type == 0)
      f.value = varint();
    else if (f.type == 1)
      f.value = fixed(8);
    else if (f.type == 2)
      f.bytes = take(varint());
    else if (f.type == 5)
      f.value = fixed(4);
    else
      throw std::runtime_error("unknown wire type");
    return f;
  }
};

struct Event {
  double wall_time = -1;
  std::optional<int64_t> step;
  std::string file_version;
  std::optional<uint64_t> session_status;
  std::map<std::string, float> scalars;
};

void read_summary(std::string_view bytes, Event& event) {
  for (Reader summary{bytes}; !summary.rest.empty();) {
    const Field value = summary.field();
    EXPECT_EQ(value.number, 1u);
    std::string tag;
    float number = -1;
    for (Reader r{value.bytes}; !r.rest.empty();) {
      const Field f = r.field();
      if (f.number == 1 && f.type == 2)
        tag = f.bytes;
      else if (f.number == 2 && f.type == 5)
        number = std::bit_cast<float>(static_cast<uint32_t>(f.value));
      else
        ADD_FAILURE() << "unexpected field " << f.number;
    }
    EXPECT_TRUE(event.scalars.emplace(tag, number).second) << tag;
  }
}

std::vector<Event> read_events(const std::string& file) {
  std::vector<Event> events;
  const auto masked = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; };
  for (Reader records{file}; !records.rest.empty();) {
    const std::string_view length = records.rest.substr(0, 8);
    const uint64_t size = records.fixed(8);
    EXPECT_EQ(records.fixed(4), masked(slow_crc32c(length)));
    const std::string_view data = records.take(size);
    EXPECT_EQ(records.fixed(4), masked(slow_crc32c(data)));
    Event& event = events.emplace_back();
    for (Reader r{data}; !r.rest.empty();) {
      const Field f = r.field();
      if (f.number == 1 && f.type == 1)
        event.wall_time = std::bit_cast<double>(f.value);
      else if (f.number == 2 && f.type == 0)
        event.step = static_cast<int64_t>(f.value);
      else if (f.number == 3 && f.type == 2)
        event.file_version = f.bytes;
      else if (f.number == 5 && f.type == 2)
        read_summary(f.bytes, event);
      else if (f.number == 7 && f.type == 2) {
        Reader session{f.bytes};
        const Field status = session.field();
        EXPECT_EQ(status.number, 1u);
        event.session_status = status.value;
      } else
        ADD_FAILURE() << "unexpected field " << f.number << " of type " << f.type;
    }
  }
  return events;
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : names_in(folder)) files.push_back(folder / name);
  return files;
}

TEST(TensorBoard, ChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(crc32c(all), slow_crc32c(all));
}

TEST(TensorBoard, EventFileReadsBack) {
  TemporaryFolder folder;
  EventFile file(folder.path(), 1234567890.75, 0);
  EXPECT_THAT(file.path().filename().string(), StartsWith("events.out.tfevents.1234567890."));
  const Scalar first[] = {{"a", 1.5f}, {std::string_view("b/c"), -0.0f}};
  file.write(1234567891.5, 300, first);
  const std::string long_tag(200, 't');
  const Scalar second[] = {{long_tag, std::nanf("")}};
  file.write(1234567892, int64_t{1} << 40, second);

  const std::vector<Event> events = read_events(read_file(file.path()));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1234567890.75);
  EXPECT_EQ(events[1].session_status, 1u);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].wall_time, 1234567891.5);
  EXPECT_EQ(events[2].step, 300);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"a", 1.5f}, {"b/c", -0.0f}}));
  EXPECT_EQ(events[3].step, int64_t{1} << 40);
  ASSERT_EQ(events[3].scalars.size(), 1u);
  EXPECT_TRUE(std::isnan(events[3].scalars.at(long_tag)));
}

TEST(TensorBoard, FirstRecordIsByteForByteAsTheFormatHasIt) {
  TemporaryFolder folder;
  const EventFile file(folder.path(), 2, 0);
  const std::string bytes = read_file(file.path());
  // 9 bytes of wall_time, 15 of file_version.
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12, 24), std::string("\x09\0\0\0\0\0\0\0\x40\x1a\x0d"
                                              "brain.Event:2",
                                              24));
}

TEST(TensorBoard, FilesOfOneSecondDoNotCollide) {
  TemporaryFolder folder;
  const EventFile first(folder.path(), 5, 0), second(folder.path(), 5.5, 0), third(folder.path(), 5.9, 0);
  EXPECT_EQ(second.path().string(), first.path().string() + ".1");
  EXPECT_EQ(third.path().string(), first.path().string() + ".2");
}

TEST(TensorBoard, StepsAndValidationBecomeScalars) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  TensorBoard board;
  board.on_start(run.start);
  train::StepReport step = ExampleRun::step(1);
  board.on_step(step);
  step.step = 2, step.skipped = true, step.loss = std::nan(""), step.resident_bytes = -1;
  board.on_step(step);
  board.on_validation({.step = 2, .loss = 3.5, .tokens = 10, .seconds = 1});
  board.on_end({});

  const std::vector<fs::path> files = event_files(tensorboard_folder(folder.path()));
  ASSERT_EQ(files.size(), 1u);
  const std::vector<Event> events = read_events(read_file(files[0]));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"train/loss", 3.25f},
                                                             {"train/grad_norm", 2.0f},
                                                             {"train/clip_factor", 0.5f},
                                                             {"train/skipped", 0.0f},
                                                             {"train/learning_rate", 3e-4f},
                                                             {"train/loss_scale", 1.0f},
                                                             {"speed/tokens_per_s", 2048.0f},
                                                             {"speed/model_tflops", 0.001024f},
                                                             {"speed/hardware_tflops", 0.0014f},
                                                             {"memory/allocated_bytes", 123e6f},
                                                             {"memory/resident_bytes", 140e6f}}));
  EXPECT_EQ(events[3].scalars.at("train/skipped"), 1.0f);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("train/loss")));
  EXPECT_FALSE(events[3].scalars.contains("memory/resident_bytes"));
  EXPECT_EQ(events[4].step, 2);
  EXPECT_EQ(events[4].scalars, (std::map<std::string, float>{{"validation/loss", 3.5f}}));
  EXPECT_GE(events[4].wall_time, events[0].wall_time);
}

TEST(TensorBoard, ANewRunNeverMixesWithAnOldOne) {
  TemporaryFolder folder;
  for (int i = 0; i < 2; ++i) {
    const ExampleRun run(folder.path());
    TensorBoard().on_start(run.start);
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("tensorboard", "tensorboard.1"));
  EXPECT_EQ(event_files(tensorboard_folder(folder.path())).size(), 1u);
}

TEST(TensorBoard, AResumedRunReplacesTheStepsItRepeats) {
  TemporaryFolder folder;
  {
    const ExampleRun run(folder.path());
    TensorBoard().on_start(run.start);
  }
  const ExampleRun run(folder.path(), 100, 40);
  TensorBoard().on_start(run.start);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("tensorboard"));
  const std::vector<fs::path> files = event_files(tensorboard_folder(folder.path()));
  ASSERT_EQ(files.size(), 2u);
  const std::vector<Event> events = read_events(read_file(files[1]));
  EXPECT_EQ(events.at(1).session_status, 1u);
  EXPECT_EQ(events.at(1).step, 41);
}

TEST(TensorBoard, FullDiskIsARunErrorAndLeavesWholeRecords) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path());
  TensorBoard board;
  board.on_start(run.start);
  board.on_step(ExampleRun::step(1));
  const fs::path file = event_files(tensorboard_folder(folder.path())).at(0);
  {
    FileSizeLimit limit(static_cast<rlim_t>(fs::file_size(file)) + 20);
    EXPECT_THAT(message_of(Fault::run, [&] { board.on_step(ExampleRun::step(2)); }), HasSubstr(file.string()));
  }
  EXPECT_EQ(read_events(read_file(file)).size(), 3u);
}

TEST(TensorBoard, AFileInTheWayIsNamed) {
  TemporaryFolder folder;
  const ExampleRun run(folder.path(), 100, 1);
  write_file(tensorboard_folder(folder.path()), "x");
  EXPECT_THAT(message_of(Fault::run, [&] { TensorBoard().on_start(run.start); }),
              HasSubstr(tensorboard_folder(folder.path()).string()));
}

}  // namespace
}  // namespace strata::report
