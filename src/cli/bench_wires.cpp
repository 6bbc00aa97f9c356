// strata bench wires: what encodes, decodes and sums what travels between ranks, against memcpy of as many bytes, in turn.

#include "cli/bench_wires.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "core/random.h"
#include "core/text.h"
#include "device/device.h"
#include "files/number_formats.h"

namespace strata::cli {

namespace {

using device::Address;
using device::Wire;
using device::WireKind;
using Json = nlohmann::ordered_json;

struct Arguments {
  int rounds = 15;
  std::string only;
  bool json = false;
};

// Values that fit into a core's second cache with what they are encoded to, and that no cache holds.
constexpr int64_t near_values = int64_t{64} << 10, far_values = int64_t{16} << 20;
constexpr int64_t moved_a_round = int64_t{64} << 20;  ///< bytes; short work is repeated

/// One thing to time.
struct Trial {
  std::string name;
  Wire wire;
  DType type;
  int64_t read = 0, written = 0;  ///< bytes
  std::function<void()> run;
};

/// Memory that all trials of one size share.
struct Buffers {
  Buffers(device::Device& device, int64_t n)
      : values(device.allocate(n * 4)),
        halves(device.allocate(n * 2)),
        sum(device.allocate(n * 4)),
        error(device.allocate(n * 4)),
        first(device.allocate(n * 4)),
        second(device.allocate(n * 4)) {
    std::vector<float> some(static_cast<size_t>(std::min<int64_t>(n, 10007)));
    for (size_t i = 0; i < some.size(); ++i) some[i] = static_cast<float>(0.02 * normal(1, i));
    std::vector<std::byte> narrow(some.size() * 2);
    files::narrow(some, DType::bf16, narrow);
    for (int64_t at = 0; at < n; at += static_cast<int64_t>(some.size())) {
      const int64_t count = std::min(n - at, static_cast<int64_t>(some.size()));
      device.upload(values.address() + at * 4, some.data(), count * 4);
      device.upload(halves.address() + at * 2, narrow.data(), count * 2);
    }
    for (const device::Memory* memory : {&sum, &error, &first, &second})
      device.fill_zero(memory->address(), memory->bytes());
  }
  device::Memory values, halves, sum, error, first, second;
};

std::vector<Trial> trials(device::Device& device, Buffers& buffers, int64_t n) {
  const std::vector<Wire> wires = {
      {.kind = WireKind::raw, .dtype = DType::bf16},
      {.kind = WireKind::int8, .block = 512},
      {.kind = WireKind::int4, .block = 128},
  };
  std::vector<Trial> all;
  for (const DType type : {DType::f32, DType::bf16})
    for (const Wire& wire : wires) {
      if (wire.lossless(type)) continue;  // travels as it is
      const Address x = type == DType::f32 ? buffers.values.address() : buffers.halves.address();
      const Address sum = buffers.sum.address(), sent = buffers.first.address(), other = buffers.second.address();
      const int64_t bytes = n * size_of(type), encoded = wire.bytes(n);
      Wire noisy = wire;
      noisy.stochastic = true;
      device::Device* d = &device;
      device.encode(wire, type, x, n, sent, {});
      device.encode(wire, type, x, n, other, {});
      const auto next = [&](std::string name, int64_t read, int64_t written, std::function<void()> run) {
        all.push_back({std::move(name), wire, type, read, written, std::move(run)});
      };
      next("encode", bytes, encoded, [=] { d->encode(wire, type, x, n, sent, {}); });
      next("encode, stochastic", bytes, encoded, [=] { d->encode(noisy, type, x, n, sent, {.key = 1}); });
      const Address error = buffers.error.address();
      next("encode with feedback", bytes + n * 4, encoded + n * 4,
           [=] { d->encode_with_feedback(wire, type, x, n, error, sent, {}); });
      next("decode", encoded, bytes, [=] { d->decode(wire, sent, n, type, sum); });
      const auto reduce = [=](const std::vector<Address>& sources, int own, bool accumulate) {
        const int64_t width = static_cast<int64_t>(sources.size());
        d->reduce(wire, sources, {&width, 1}, own, type, n, DType::f32, sum, accumulate);
      };
      next("sum of own and one", bytes + encoded, n * 4, [=, two = std::vector{x, sent}] { reduce(two, 0, false); });
      if (type != DType::f32) continue;  // the others read encoded values only
      next("sum of two", 2 * encoded, n * 4, [=, two = std::vector{sent, other}] { reduce(two, -1, false); });
      next("add one", encoded + n * 4, n * 4, [=, one = std::vector{sent}] { reduce(one, -1, true); });
    }
  return all;
}

double seconds_of(int64_t times, const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < times; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(times);
}

void bench_wires(const Arguments& arguments) {
  const auto device = device::make_cpu(1);
  Json results = Json::array();
  if (!arguments.json) {
    print_line(fmt::format("{}; best of {} rounds; memcpy moves as many bytes, half read and half written",
                           device->description(), arguments.rounds));
    print_line(fmt::format("  {:<21} {:<5} {:<5} {:>9} {:>7} {:>7} {:>6}", "operation", "wire", "type", "elements",
                           "GB/s", "memcpy", "ratio"));
  }
  for (const int64_t n : {near_values, far_values}) {
    Buffers buffers(*device, n);
    // Ordinary memory for memcpy, as large as any trial needs.
    std::vector<char> from(static_cast<size_t>(n * 8), 1), to(from.size());
    for (const Trial& t : trials(*device, buffers, n)) {
      if (!arguments.only.empty() && t.name.find(arguments.only) == std::string::npos) continue;
      const int64_t bytes = t.read + t.written, times = std::max<int64_t>(1, moved_a_round / bytes);
      double mine = 0, copy = 0;
      for (int round = 0; round <= arguments.rounds; ++round) {  // the first one warms up
        const double a = seconds_of(times, t.run);
        const double b =
            seconds_of(times, [&] { std::memcpy(to.data(), from.data(), static_cast<size_t>(bytes / 2)); });
        if (round == 0) continue;
        mine = round == 1 ? a : std::min(mine, a);
        copy = round == 1 ? b : std::min(copy, b);
      }
      const double rate = static_cast<double>(bytes) / mine / 1e9, yardstick = static_cast<double>(bytes) / copy / 1e9;
      const std::string wire(device::name_of(t.wire)), type(name_of(t.type));
      if (arguments.json)
        results.push_back({{"operation", t.name},
                           {"wire", wire},
                           {"type", type},
                           {"elements", n},
                           {"bytes", bytes},
                           {"ms", mine * 1e3},
                           {"gb_per_s", rate},
                           {"memcpy_gb_per_s", yardstick},
                           {"ratio", rate / yardstick}});
      else
        print_line(fmt::format("  {:<21} {:<5} {:<5} {:>9} {:>7.1f} {:>7.1f} {:>6.2f}", t.name, wire, type, n, rate,
                               yardstick, rate / yardstick));
    }
  }
  if (arguments.json) print_json({{"device", device->description()}, {"rounds", arguments.rounds}, {"wires", results}});
}

}  // namespace

void add_bench_wires(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = bench.add_subcommand(
      "wires", "Encoding for the wire, decoding and summing, on one thread, against memcpy of as many bytes");
  verb->add_option("--only", arguments->only, "Operations whose name holds this");
  verb->add_option("--rounds", arguments->rounds, "Rounds; the best counts")->check(CLI::Range(1, 1000));
  add_json(*verb, arguments->json);
  verb->callback([arguments] { bench_wires(*arguments); });
}

}  // namespace strata::cli
