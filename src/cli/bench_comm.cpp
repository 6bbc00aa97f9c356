// strata bench comm: collectives over all ranks, in the columns of nccl-tests, beside the MPI library's own, in turn.

#include "cli/bench_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/ranks.h"
#include "cli/verb.h"
#include "comm/hop_run.h"
#include "comm/idle.h"
#include "core/error.h"
#include "device/device.h"
#include "device/threads.h"
#include "job/job.h"
#include "ops/op.h"

namespace strata::cli {

namespace {

using comm::Collective;
using Json = nlohmann::ordered_json;

struct Arguments {
  int64_t begin = int64_t{64} << 10, end = int64_t{64} << 20;
  int factor = 4, rounds = 7;
  std::string algorithm = "direct", wire = "fp32";
  bool json = false;
};

/// Ours, prepared: one hop, or a reduction and a gather.
class Ours {
 public:
  Ours(Collective collective, comm::Algorithm algorithm, const device::Wire& wire, int64_t elements,
       comm::Transport& transport, device::Device& device)
      : transport_(transport), device_(device) {
    std::vector<int64_t> ranks;
    for (int64_t r = 0; r < transport.ranks(); ++r) ranks.push_back(r);
    const std::vector<Collective> hops = collective == Collective::all_reduce
                                             ? std::vector{Collective::reduce_scatter, Collective::all_gather}
                                             : std::vector{collective};
    int64_t staging = 1;
    for (Collective each : hops) {
      const comm::Hop hop{each, algorithm, {transport.ranks()}, elements, DType::f32, wire};
      hops_.emplace_back(hop, ranks, transport.rank());
      staging = std::max(staging, comm::staging_bytes(hop));
    }
    own_ = layout::part({0, elements}, transport.ranks(), transport.rank());
    memory_ = device.allocate(elements * 4);
    staging_ = device.allocate(staging);
  }
  device::Address whole() const { return memory_.address(); }
  device::Address part() const { return whole() + own_.begin * 4; }
  const layout::Cut& own() const { return own_; }

  void run() {
    for (comm::HopRun& hop : hops_) {
      const bool gather = hop.hop().collective == Collective::all_gather;
      hop.begin(transport_, device_, {gather ? part() : whole(), gather ? whole() : part(), staging_.address(), {}}, 1,
                {}, false);
      comm::Idle idle;
      while (!hop.advance()) {
        hop.moved() ? idle.reset() : idle.pause();
        transport_.poll();
      }
    }
  }

 private:
  comm::Transport& transport_;
  device::Device& device_;
  layout::Cut own_;
  std::vector<comm::HopRun> hops_;
  device::Memory memory_, staging_;
};

/// With the blocks that placements use unless told otherwise.
device::Wire wire_of(const std::string& name) {
  if (name == "bf16") return {.dtype = DType::bf16};
  const job::Placement usual;
  if (name == "int8") return {device::WireKind::int8, DType::f32, static_cast<int32_t>(usual.int8_block)};
  if (name == "int4") return {device::WireKind::int4, DType::f32, static_cast<int32_t>(usual.int4_block)};
  return {};
}

struct Row {
  Collective collective;
  int64_t bytes = 0;
  double ours = 0, library = 0;  ///< seconds
  double error = 0;              ///< largest difference from the sum or the value expected
};

Row measure(const Team& team, const Arguments& arguments, Collective collective, int64_t bytes) {
  const int64_t ranks = team.ranks, elements = round_up(divide_up(bytes, 4), ranks * ops::grain);
  const auto device = device::make_cpu(1);
  const auto algorithm = arguments.algorithm == "ring" ? comm::Algorithm::ring : comm::Algorithm::direct;
  Ours ours(collective, algorithm, wire_of(arguments.wire), elements, *team.transport, *device);
  comm::Control control(*team.transport, 120);
  std::vector<float> in(static_cast<size_t>(elements)), out(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) in[static_cast<size_t>(i)] = static_cast<float>((i + team.rank * 7) % 64) / 64;
  const bool gather = collective == Collective::all_gather;
  const float* library_in = gather ? in.data() + ours.own().begin : in.data();

  Row row{collective, elements * 4};
  device->upload(ours.whole(), in.data(), elements * 4);
  ours.run();
  device->download(out.data(), ours.whole(), elements * 4);
  const auto value = [&](int64_t rank, int64_t i) { return static_cast<double>((i + rank * 7) % 64) / 64; };
  for (int64_t rank = 0, i = 0; rank < ranks; ++rank)
    for (const layout::Cut part = layout::part({0, elements}, ranks, rank); i < part.begin + part.elements; ++i) {
      if (collective == Collective::reduce_scatter && rank != team.rank) continue;
      double expected = gather ? value(rank, i) : 0;
      for (int64_t r = 0; !gather && r < ranks; ++r) expected += value(r, i);
      row.error = std::max(row.error, std::abs(static_cast<double>(out[static_cast<size_t>(i)]) - expected));
    }

  // Enough runs that a round takes some milliseconds.
  const int64_t runs = std::clamp<int64_t>((int64_t{64} << 20) / row.bytes, 2, 64);
  const auto time = [&](const auto& call) {
    control.barrier("beginning a round");
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < runs; ++i) call();
    control.barrier("ending a round");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(runs);
  };
  row.ours = row.library = std::numeric_limits<double>::infinity();
  for (int round = 0; round < arguments.rounds; ++round) {
    row.ours = std::min(row.ours, time([&] { ours.run(); }));
    row.library = std::min(row.library,
                           time([&] { team.world->library_collective(collective, library_in, out.data(), elements); }));
  }
  for (const double error : control.gather(row.error, "comparing results")) row.error = std::max(row.error, error);
  return row;
}

void bench(const Arguments& arguments) {
  device::prepare_threads(1, mpi::ranks_on_node(), program_arguments());
  with_ranks(false, 120, arguments.json, [&](const Team& team) {
    if (team.ranks == 1) throw input_error("bench comm measures messages between ranks: start it with mpirun -n N");
    const bool tells = team.rank == 0;
    Json rows = Json::array();
    if (tells && !arguments.json) {
      print_line(fmt::format("{} ranks, {}; {}, {} on the wire (the library's: fp32)", team.ranks, mpi::library(),
                             arguments.algorithm, arguments.wire));
      print_line(fmt::format("{:>14} {:>12} {:>12} {:>6} {:>6} {:>10} {:>8} {:>8} {:>8}   {:>10} {:>8} {:>6}", "",
                             "size (B)", "count", "type", "redop", "time (us)", "algbw", "busbw", "error", "MPI (us)",
                             "busbw", "ratio"));
    }
    for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce})
      for (int64_t bytes = arguments.begin; bytes <= arguments.end; bytes *= arguments.factor) {
        const Row row = measure(team, arguments, collective, bytes);
        if (!tells) continue;
        const double n = static_cast<double>(team.ranks), size = static_cast<double>(row.bytes);
        const double factor = (collective == Collective::all_reduce ? 2 : 1) * (n - 1) / n;
        const auto gb = [&](double seconds) { return size / seconds / 1e9; };
        const char* redop = collective == Collective::all_gather ? "none" : "sum";
        if (arguments.json)
          rows.push_back({{"collective", comm::name_of(collective)},
                          {"bytes", row.bytes},
                          {"us", row.ours * 1e6},
                          {"algbw_gb_per_s", gb(row.ours)},
                          {"busbw_gb_per_s", gb(row.ours) * factor},
                          {"error", row.error},
                          {"library_us", row.library * 1e6},
                          {"library_busbw_gb_per_s", gb(row.library) * factor},
                          {"ratio", row.library / row.ours}});
        else
          print_line(fmt::format(
              "{:>14} {:>12} {:>12} {:>6} {:>6} {:>10.1f} {:>8.2f} {:>8.2f} {:>8.0e}   {:>10.1f} {:>8.2f} {:>6.2f}",
              comm::name_of(collective), row.bytes, row.bytes / 4, "float", redop, row.ours * 1e6, gb(row.ours),
              gb(row.ours) * factor, row.error, row.library * 1e6, gb(row.library) * factor, row.library / row.ours));
      }
    if (tells && arguments.json)
      print_json({{"ranks", team.ranks},
                  {"library", mpi::library()},
                  {"algorithm", arguments.algorithm},
                  {"wire", arguments.wire},
                  {"rows", rows}});
  });
}

}  // namespace

void add_bench_comm(CLI::App& bench_verb) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = bench_verb.add_subcommand(
      "comm", "Collectives over the ranks that mpirun started, beside the MPI library's own (columns of nccl-tests)");
  verb->add_option("--begin", arguments->begin, "Smallest size in bytes")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 33));
  verb->add_option("--end", arguments->end, "Largest size in bytes")->check(CLI::Range(int64_t{4}, int64_t{1} << 33));
  verb->add_option("--factor", arguments->factor, "From one size to the next")->check(CLI::Range(2, 1024));
  verb->add_option("--rounds", arguments->rounds, "Rounds, each side in turn; the best of each counts")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--algorithm", arguments->algorithm, "direct, or ring as published libraries do")
      ->check(CLI::IsMember({"direct", "ring"}));
  verb->add_option("--wire", arguments->wire, "How our values travel; their size is counted in fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "int8", "int4"}));
  add_json(*verb, arguments->json);
  verb->callback([arguments] { bench(*arguments); });
}

}  // namespace strata::cli
