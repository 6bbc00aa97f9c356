// strata bench kernels: each memory-bound kernel against plain loads and stores of the same buffers, in turn, and against
// itself on operands that stay in cache, times the threads.

#include "cli/bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "device/device.h"
#include "device/stream.h"
#include "device/threads.h"
#include "files/number_formats.h"
#include "ops/op.h"

namespace strata::cli {

namespace {

using device::Address;
using device::Stream;
using ops::Kind;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::vector<std::string> dtypes = {"fp32", "bf16"};
  std::string only;
  int threads = 1, rounds = 7;
  bool json = false;
};

// GPT-2 124M.
constexpr int64_t hidden = 768, wide = 4 * hidden, vocab = 50257, columns = 50304, heads = 12,
                  head_dim = hidden / heads;
constexpr int64_t footprint = int64_t{256} << 20;  ///< far more than caches hold
constexpr int64_t in_cache = int64_t{384} << 10;   ///< at most what a core's second cache holds for long

/// What widths and vocabulary leave open.
struct Extent {
  int64_t batch = 4, sequence = 256;
  int64_t parameters = 3464 * ops::grain;  ///< of the largest unit
  int64_t table = columns;                 ///< rows of the embedding
  int64_t rows() const { return batch * sequence; }

  /// The same work on fewer rows, and on a table and parameters as much smaller.
  Extent of_rows(int64_t count) const {
    return {1, count, std::max<int64_t>(1, parameters / ops::grain * count / rows()) * ops::grain,
            std::max<int64_t>(1, table * count / rows())};
  }
};

/// What an operand begins with, so that no kernel meets numbers that it would not meet in training.
struct Contents {
  enum { normal, positive, same, ids, bytes, record } kind = normal;
  double value = 1;  ///< the spread of numbers, or their value, or the end of ids
  std::vector<uint8_t> record_bytes{};
};
Contents normals(double spread = 1) { return {Contents::normal, spread}; }
template <typename Record>
Contents record_of(const Record& record) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
  return {Contents::record, 0, {bytes, bytes + sizeof(record)}};
}

/// One operation with its operands. Outputs that are inputs too are in place.
struct Trial {
  ops::Op op;
  std::string shape;
  std::vector<ops::Tensor> tensors{};
  std::vector<Contents> contents{};
  int table = -1;  ///< operand of which a run reads only `table_bytes`, in rows here and there; all sets share it
  int64_t table_bytes = 0;

  int add(DType dtype, ops::Shape extents, Contents what = normals()) {
    tensors.push_back({.name = "t" + std::to_string(tensors.size()), .dtype = dtype, .shape = extents});
    contents.push_back(std::move(what));
    return static_cast<int>(tensors.size()) - 1;
  }
  void in(DType dtype, ops::Shape extents, Contents what = normals()) { op.in.push_back(add(dtype, extents, what)); }
  void out(DType dtype, ops::Shape extents, Contents what = {Contents::same, 0}) {
    op.out.push_back(add(dtype, extents, what));
  }
  void in_place(int input) { op.out.push_back(op.in[static_cast<size_t>(input)]); }
  void step_inputs() {
    in(DType::u8, {sizeof(ops::StepInputs)},
       record_of(ops::StepInputs{.grad_scale = 64, .learning_rate = 1e-4f, .bias1 = 0.5f, .bias2 = 0.1f, .seed = 1}));
  }
};

Trial trial(Kind kind, std::string shape, ops::Attributes attributes = {}) {
  return {.op = {.kind = kind, .attributes = std::move(attributes)}, .shape = std::move(shape)};
}

std::string shape_of(int64_t count, int64_t width) { return fmt::format("{} x {}", count, width); }

std::vector<Trial> trials(DType t, const Extent& extent) {
  const DType f32 = DType::f32;
  const int64_t batch = extent.batch, sequence = extent.sequence, rows = extent.rows(), parameters = extent.parameters;
  const ops::Shape narrow = {rows, hidden}, broad = {rows, wide}, each = {rows}, one_row = {hidden};
  const std::string at_narrow = shape_of(rows, hidden), at_broad = shape_of(rows, wide);
  std::vector<Trial> all;
  const auto next = [&](Trial one) { all.push_back(std::move(one)); };

  for (const bool layer : {true, false}) {
    Trial f = trial(layer ? Kind::layer_norm : Kind::rms_norm, at_narrow, ops::NormAttributes{});
    f.in(t, narrow);
    f.in(t, one_row);
    if (layer) f.in(t, one_row);
    f.out(t, narrow);
    if (layer) f.out(f32, each);
    f.out(f32, each);
    next(f);
    Trial b = trial(layer ? Kind::layer_norm_backward : Kind::rms_norm_backward, at_narrow, ops::NormAttributes{});
    b.in(t, narrow);
    b.in(t, narrow);
    b.in(t, one_row);
    if (layer) b.in(f32, each, {Contents::same, 0});
    b.in(f32, each, {Contents::same, 1});
    b.in(t, narrow);
    b.in_place(layer ? 5 : 4);
    b.out(f32, one_row);
    if (layer) b.out(f32, one_row);
    next(b);
  }
  for (const bool tanh : {true, false}) {
    const std::string at = at_broad + (tanh ? " tanh" : " erf");
    Trial f = trial(Kind::gelu, at, ops::GeluAttributes{tanh});
    f.in(t, broad);
    f.out(t, broad);
    next(f);
    Trial b = trial(Kind::gelu_backward, at, ops::GeluAttributes{tanh});
    b.in(t, broad);
    b.in(t, broad);
    b.in_place(1);
    next(b);
  }
  {
    Trial f = trial(Kind::swiglu, at_broad);
    f.in(t, {rows, 2 * wide});
    f.out(t, broad);
    next(f);
    Trial b = trial(Kind::swiglu_backward, at_broad);
    b.in(t, broad);
    b.in(t, {rows, 2 * wide});
    b.in_place(1);
    next(b);
  }
  {
    Trial r = trial(Kind::rotary, shape_of(rows, 3 * hidden),
                    ops::RotaryAttributes{heads, heads, head_dim, head_dim, sequence, false, false});
    r.in(t, {rows, 3 * hidden});
    r.in(f32, {sequence, head_dim}, {Contents::same, 0.7});
    r.out(t, {rows, 3 * hidden});
    next(r);
  }
  {
    Trial a = trial(Kind::add, at_narrow);
    a.in(t, narrow);
    a.in(t, narrow);
    a.in_place(0);
    next(a);
    Trial d = trial(Kind::dropout, at_narrow, ops::DropoutAttributes{0.1f, 0, sequence});
    d.in(t, narrow);
    d.in(DType::i64, {batch}, {Contents::same, 0});
    d.step_inputs();
    d.out(t, narrow);
    next(d);
  }
  {
    Trial e = trial(Kind::embedding, at_narrow, ops::EmbeddingAttributes{sequence});
    e.in(DType::i32, each, {Contents::ids, static_cast<double>(std::min(vocab, extent.table))});
    e.in(t, {extent.table, hidden});
    e.in(t, {sequence, hidden});
    e.out(t, narrow);
    e.table = e.op.in[1];
    e.table_bytes = rows * hidden * size_of(t);
    next(e);
    Trial b = trial(Kind::embedding_backward, shape_of(extent.table, hidden), ops::EmbeddingAttributes{sequence});
    b.in(t, narrow);
    b.in(DType::i32, each, {Contents::ids, static_cast<double>(std::min(vocab, extent.table))});
    b.out(f32, {extent.table, hidden});
    b.out(f32, {sequence, hidden});
    next(b);
  }
  {
    const std::string at = shape_of(rows, columns);
    Trial f = trial(Kind::cross_entropy, at, ops::CrossEntropyAttributes{vocab});
    f.in(t, {rows, columns});
    f.in(DType::i32, each, {Contents::ids, static_cast<double>(vocab)});
    f.out(DType::f64, {1});
    f.out(f32, each);
    next(f);
    Trial b = trial(Kind::cross_entropy_backward, at, ops::CrossEntropyAttributes{vocab});
    b.in(t, {rows, columns});
    b.in(f32, each, {Contents::same, 11.3});
    b.in(DType::i32, each, {Contents::ids, static_cast<double>(vocab)});
    b.step_inputs();
    b.in_place(0);
    next(b);
  }
  const ops::Shape flat = {parameters};
  if (t == f32) {
    Trial g = trial(Kind::grad_norm, std::to_string(parameters));
    g.in(f32, flat);
    g.out(DType::i64, {ops::norm_limbs});
    next(g);
    Trial z = trial(Kind::fill_zero, std::to_string(parameters));
    z.out(f32, flat);
    next(z);
  }
  for (const int64_t block : {0, 256}) {
    ops::AdamWAttributes attributes{.weight_decay = 0.1f, .ranges = {{0, parameters, true}}, .block = block};
    Trial a = trial(Kind::adamw, std::to_string(parameters) + (block > 0 ? ", 8-bit" : ""), attributes);
    a.in(f32, flat, normals(1e-3));
    a.step_inputs();
    a.in(DType::u8, {sizeof(ops::StepResults)}, record_of(ops::StepResults{}));
    a.out(f32, flat, normals());
    const DType moment = block > 0 ? DType::u8 : f32;
    a.out(moment, flat, block > 0 ? Contents{Contents::bytes, 0} : normals(1e-3));
    a.out(moment, flat, block > 0 ? Contents{Contents::bytes, 0} : Contents{Contents::positive, 1e-6});
    if (block > 0)
      for (const double scale : {1e-3, 1e-6}) a.out(f32, {parameters / block}, {Contents::same, scale});
    if (t != f32) a.out(t, flat);
    next(a);
  }
  return all;
}

void append(std::vector<uint8_t>& bytes, DType dtype, double value) {
  const auto put = [&](auto number) {
    const auto* first = reinterpret_cast<const uint8_t*>(&number);
    bytes.insert(bytes.end(), first, first + sizeof(number));
  };
  switch (dtype) {
    case DType::f64: put(value); break;
    case DType::bf16: put(files::float_to_bf16(static_cast<float>(value))); break;
    case DType::f16: put(files::float_to_f16(static_cast<float>(value))); break;
    case DType::i32: put(static_cast<int32_t>(value)); break;
    case DType::i64: put(static_cast<int64_t>(value)); break;
    case DType::u8: put(static_cast<uint8_t>(value)); break;
    default: put(static_cast<float>(value));
  }
}

void fill(device::Device& device, Address at, const ops::Tensor& tensor, const Contents& what, uint64_t key) {
  if (what.kind == Contents::record) return device.upload(at, what.record_bytes.data(), tensor.bytes());
  // A stretch of numbers, again and again.
  const int64_t count = std::min<int64_t>(tensor.shape.elements(), 10007);
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    double value = what.value;
    switch (what.kind) {
      case Contents::normal: value *= normal(key, index); break;
      case Contents::positive: value *= std::abs(normal(key, index)); break;
      case Contents::ids: value = philox(key, index)[0] % static_cast<uint32_t>(what.value); break;
      case Contents::bytes: value = philox(key, index)[0] % 256; break;
      default: break;
    }
    append(bytes, tensor.dtype, value);
  }
  for (int64_t offset = 0; offset < tensor.bytes(); offset += static_cast<int64_t>(bytes.size()))
    device.upload(at + offset, bytes.data(), std::min(tensor.bytes() - offset, static_cast<int64_t>(bytes.size())));
}

/// Sets of a trial's operands in a device's memory, one behind the other; a shared table in front of them.
class Sets {
 public:
  Sets(device::Device& device, Trial& t, int64_t least_bytes) {
    if (const int64_t workspace = device.workspace_bytes(t.op, t.tensors); workspace > 0 && t.op.workspace < 0)
      t.op.workspace = t.add(DType::u8, {workspace}, {Contents::same, 0});
    for (size_t i = 0; i < t.tensors.size(); ++i) {
      offsets_.push_back(set_bytes_);
      if (static_cast<int>(i) != t.table) set_bytes_ += round_up(t.tensors[i].bytes(), 4096);
    }
    table_ = t.table;
    front_ = t.table < 0 ? 0 : round_up(t.tensors[static_cast<size_t>(t.table)].bytes(), 4096);
    count_ = std::max<int64_t>(1, divide_up(least_bytes, set_bytes_));
    memory_ = device.allocate(front_ + count_ * set_bytes_);
  }

  int64_t count() const { return count_; }

  Address address(int64_t set, int tensor) const {
    if (tensor == table_) return memory_.address();
    return memory_.address() + (front_ + set * set_bytes_ + offsets_[static_cast<size_t>(tensor)]);
  }

  void fill(device::Device& device, const Trial& t) const {
    for (int64_t set = 0; set < count_; ++set)
      for (int i = 0; i < static_cast<int>(t.tensors.size()); ++i)
        if (i != t.table || set == 0)
          cli::fill(device, address(set, i), t.tensors[static_cast<size_t>(i)], t.contents[static_cast<size_t>(i)],
                    static_cast<uint64_t>(1000 * set + i));
  }

  /// What a launch takes.
  std::vector<Address> operands(const Trial& t, int64_t set) const {
    std::vector<Address> all;
    for (int i : t.op.in) all.push_back(address(set, i));
    for (int i : t.op.out) all.push_back(address(set, i));
    if (t.op.workspace >= 0) all.push_back(address(set, t.op.workspace));
    return all;
  }

 private:
  std::vector<int64_t> offsets_;
  int64_t set_bytes_ = 0, front_ = 0, count_ = 0;
  int table_ = -1;
  device::Memory memory_;
};

/// f(tensor, use, bytes) for everything that a run must move.
template <typename F>
void each_moved(const Trial& t, const F& f) {
  const auto bytes = [&](int tensor) {
    return tensor == t.table ? t.table_bytes : t.tensors[static_cast<size_t>(tensor)].bytes();
  };
  for (int i : t.op.in)
    if (std::find(t.op.out.begin(), t.op.out.end(), i) == t.op.out.end()) f(i, Stream::read, bytes(i));
  for (size_t i = 0; i < t.op.out.size(); ++i) {
    const bool in_place = std::find(t.op.in.begin(), t.op.in.end(), t.op.out[i]) != t.op.in.end();
    const size_t states = t.op.kind == Kind::adamw && t.op.as<ops::AdamWAttributes>().block > 0 ? 5 : 3;
    const bool state = t.op.kind == Kind::adamw && i < states;
    f(t.op.out[i], in_place || state ? Stream::update : Stream::write, bytes(t.op.out[i]));
  }
}

/// Bytes that a run must move; what is updated counts twice.
double moved_bytes(const Trial& t) {
  int64_t sum = 0;
  each_moved(t, [&](int, Stream::Use use, int64_t bytes) { sum += bytes * (use == Stream::update ? 2 : 1); });
  return static_cast<double>(sum);
}

struct Result {
  double seconds = 0, stream_seconds = 0;  ///< of one run
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Result time(device::Device& device, Trial& t, int threads, int rounds) {
  const Sets sets(device, t, footprint);
  sets.fill(device, t);
  std::vector<std::vector<Address>> operands, moved(static_cast<size_t>(sets.count()));
  std::vector<Stream> streams;
  for (int64_t set = 0; set < sets.count(); ++set) {
    operands.push_back(sets.operands(t, set));
    each_moved(t, [&](int tensor, Stream::Use use, int64_t bytes) {
      Address at = sets.address(set, tensor);
      if (tensor == t.table)
        at = at + round_up(set * bytes % (t.tensors[static_cast<size_t>(tensor)].bytes() - bytes), 64);
      moved[static_cast<size_t>(set)].push_back(at);
      if (set == 0) streams.push_back({bytes, use});
    });
  }
  const auto kernel = device.prepare(t.op, t.tensors), yardstick = device::make_stream(threads, streams);
  Result result;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    const double mine = seconds_of([&] {
      for (const auto& set : operands) device.launch(*kernel, set, {});
    });
    const double stream = seconds_of([&] {
      for (const auto& set : moved) device.launch(*yardstick, set, {});
    });
    if (round == 0) continue;
    const auto best = [&](double& so_far, double seconds) {
      seconds /= static_cast<double>(sets.count());
      if (round == 1 || seconds < so_far) so_far = seconds;
    };
    best(result.seconds, mine);
    best(result.stream_seconds, stream);
  }
  return result;
}

/// Bytes a second of the `index`-th trial by one thread on fewer rows, as many as stay in cache.
double rate_in_cache(device::Device& one_thread, DType dtype, size_t index, int rounds) {
  const Extent whole;
  Trial t;
  for (int64_t rows = whole.rows() / 2; rows >= 1; rows /= 2) {
    t = trials(dtype, whole.of_rows(rows))[index];
    int64_t bytes = 0;
    each_moved(t, [&](int, Stream::Use, int64_t operand) { bytes += operand; });
    if (bytes <= in_cache) break;
  }
  const Sets sets(one_thread, t, 0);
  const auto kernel = one_thread.prepare(t.op, t.tensors);
  const auto operands = sets.operands(t, 0);
  constexpr int runs = 30;
  double best = 0;
  for (int round = 0; round <= rounds; ++round) {
    sets.fill(one_thread, t);  // or what is in place would drift to numbers of another kind
    one_thread.launch(*kernel, operands, {});
    const double seconds = seconds_of([&] {
      for (int i = 0; i < runs; ++i) one_thread.launch(*kernel, operands, {});
    });
    best = std::max(best, runs * moved_bytes(t) / seconds);
  }
  return best;
}

void bench_kernels(const Arguments& arguments) {
  device::prepare_threads(arguments.threads, 1, program_arguments());
  const auto device = device::make_cpu(arguments.threads), one_thread = device::make_cpu(1);
  const Extent extent;
  Json kernels = Json::array();
  if (!arguments.json) {
    print_line(fmt::format("GPT-2 124M at {} x {}, {}; best of {} rounds over {} of buffers", extent.batch,
                           extent.sequence, device->description(), arguments.rounds, human_bytes(footprint)));
    print_line(fmt::format("  {:<23} {:<5} {:<18} {:>8} {:>8} {:>7} {:>7} {:>6} {:>7}  {}", "kernel", "type", "shape",
                           "MB", "ms", "GB/s", "stream", "ratio", "cached", "bound by"));
  }
  for (const std::string& name : arguments.dtypes) {
    const DType dtype = name == "bf16" ? DType::bf16 : name == "fp16" ? DType::f16 : DType::f32;
    std::vector<Trial> all = trials(dtype, extent);
    for (size_t i = 0; i < all.size(); ++i) {
      Trial& t = all[i];
      const std::string kind(ops::name_of(t.op.kind));
      if (!arguments.only.empty() && kind.find(arguments.only) == std::string::npos) continue;
      const Result r = time(*device, t, arguments.threads, arguments.rounds);
      const double bytes = moved_bytes(t), rate = bytes / r.seconds / 1e9, stream = bytes / r.stream_seconds / 1e9;
      // No memory to wait for: what the cores could do at most. Where that is hardly more than they do, or less than
      // is asked of a kernel, they are the limit.
      const double cached = arguments.threads * rate_in_cache(*one_thread, dtype, i, arguments.rounds) / 1e9;
      const char* bound = cached < std::max(1.1 * rate, 0.8 * stream) ? "arithmetic" : "memory";
      if (arguments.json)
        kernels.push_back({{"kernel", kind},
                           {"dtype", name},
                           {"shape", t.shape},
                           {"bytes", bytes},
                           {"ms", r.seconds * 1e3},
                           {"gb_per_s", rate},
                           {"stream_gb_per_s", stream},
                           {"ratio", rate / stream},
                           {"cached_gb_per_s", cached},
                           {"bound", bound}});
      else
        print_line(fmt::format("  {:<23} {:<5} {:<18} {:>8.1f} {:>8.3f} {:>7.1f} {:>7.1f} {:>6.2f} {:>7.1f}  {}", kind,
                               name, t.shape, bytes / 1e6, r.seconds * 1e3, rate, stream, rate / stream, cached,
                               bound));
    }
  }
  if (arguments.json)
    print_json({{"device", device->description()},
                {"threads", arguments.threads},
                {"footprint_bytes", footprint},
                {"kernels", kernels}});
}

}  // namespace

void add_bench_kernels(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = bench.add_subcommand("kernels",
                                        "Each memory-bound kernel against plain loads and stores of the same buffers, "
                                        "in turn, and against itself in cache: "
                                        "by one thread on operands that stay there, times the threads");
  verb->add_option("--dtype", arguments->dtypes, "Compute types")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->delimiter(',');
  verb->add_option("--only", arguments->only, "Kernels whose name holds this");
  verb->add_option("--threads", arguments->threads, "Threads")->check(CLI::Range(1, 1024));
  verb->add_option("--rounds", arguments->rounds, "Rounds; the best counts")->check(CLI::Range(1, 1000));
  add_json(*verb, arguments->json);
  verb->callback([arguments] { bench_kernels(*arguments); });
}

}  // namespace strata::cli
