// attention, cached_attention, attention_backward: exact causal attention that never holds more scores than a tile.
//
// This source cuts an operation into tasks; attention_forward.cpp and attention_backward.cpp do them. A query's result
// depends on its keys and on tile borders at fixed positions, never on the batch, the sequence's length, the cut into
// tasks or the threads; generating gives the bits that training gives. Gradients depend on the sequence's length too,
// which chunks of keys follow from (attention_tiles.h).
#include "device/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/attention_tiles.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/workspace.h"

namespace strata::device::cpu {
namespace {

/// Tasks of unequal size, taken by whichever thread is free: body(task, worker) with worker < attention_workers().
template <typename Body>
void parallel_tasks(int threads, int64_t count, const Body& body) {
  if (attention_workers(threads, count) == 1) {
    for (int64_t task = 0; task < count; ++task) body(task, 0);
    return;
  }
  std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(threads)
  for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(task, omp_get_thread_num());
}

/// The shapes and the compute type of one operation.
struct Heads {
  int64_t heads = 0, kv_heads = 0, group = 0, head_dim = 0, sequence = 0;
  int64_t tokens = 0, stride = 0, y_stride = 0;
  float scale = 0;
  DType type = DType::f32;

  Heads(const ops::Op& op, const ops::Tensor& qkv, const ops::Tensor& y) {
    const auto& a = op.as<ops::AttentionAttributes>();
    STRATA_CHECK(a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0 && a.sequence > 0 && a.heads % a.kv_heads == 0,
                 "attention with {} heads, {} KV heads of {}, sequence {}", a.heads, a.kv_heads, a.head_dim,
                 a.sequence);
    type = qkv.dtype;
    STRATA_CHECK((type == DType::f32 || type == DType::bf16 || type == DType::f16) && y.dtype == type, "{} in {}",
                 qkv.name, strata::name_of(type));
    heads = a.heads;
    kv_heads = a.kv_heads;
    group = heads / kv_heads;
    head_dim = a.head_dim;
    sequence = a.sequence;
    scale = a.scale;
    stride = (heads + 2 * kv_heads) * head_dim;
    y_stride = heads * head_dim;
    tokens = rows_of(y).count;
    STRATA_CHECK(rows_of(qkv) == (Rows{tokens, stride}) && rows_of(y).width == y_stride, "{}, {}", qkv.name, y.name);
  }

  ReadRows read(Address address, int64_t row_stride) const { return {pointer<const void>(address), type, row_stride}; }
  WriteRows write(Address address, int64_t row_stride) const { return {pointer<void>(address), type, row_stride}; }
};

/// Whether the optional document_starts follows `required` inputs.
bool has_documents(const ops::Op& op, Tensors tensors, size_t required, const Heads& a) {
  if (op.in.size() == required) return false;
  const ops::Tensor& starts = input(op, tensors, required);
  STRATA_CHECK(starts.dtype == DType::i32 && starts.shape.elements() == a.tokens, "{}", starts.name);
  return true;
}

void check_workspace(const ops::Op& op, Tensors tensors, int threads) {
  const int64_t bytes = attention_workspace(op, tensors, threads);
  STRATA_CHECK(op.workspace >= 0 && tensors[static_cast<size_t>(op.workspace)].bytes() >= bytes,
               "{} wants a workspace of {} bytes", ops::name_of(op.kind), bytes);
}

void check_statistics(const ops::Tensor& lse, const Heads& a) {
  STRATA_CHECK(lse.dtype == DType::f32 && lse.shape.elements() == a.tokens * a.heads, "{}", lse.name);
}

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 1, 2, 2, 2);
  const Heads a(op, input(op, tensors, 0), output(op, tensors, 0));
  STRATA_CHECK(a.tokens % a.sequence == 0);
  check_statistics(output(op, tensors, 1), a);
  const bool documents = has_documents(op, tensors, 1, a);
  const int64_t groups = a.tokens / a.sequence * a.kv_heads;
  const int64_t rows = attention_queries(groups, a.group, a.sequence, a.head_dim, threads),
                tiles = divide_up(a.sequence, rows);
  const int64_t floats = AttentionForwardTiles(a.head_dim, a.group, rows).total;
  check_workspace(op, tensors, threads);
  return make_kernel([=](Operands operands, const Launch&) {
    const size_t out = documents ? 2 : 1;
    const ReadRows qkv = a.read(operands[0], a.stride);
    const int32_t* starts = documents ? pointer<const int32_t>(operands[1]) : nullptr;
    const WriteRows y = a.write(operands[out], a.y_stride);
    float *lse = pointer<float>(operands[out + 1]), *work = pointer<float>(operands[out + 2]);
    parallel_tasks(threads, groups * tiles, [=](int64_t index, int worker) {
      // Late queries, which see the most keys, come first.
      const int64_t first = (tiles - 1 - index / groups) * rows, group = index % groups;
      const int64_t sequence = group / a.kv_heads, kv = group % a.kv_heads, head = kv * a.group;
      const int64_t origin = sequence * a.sequence;
      AttentionForwardTask task;
      task.q = qkv.at(origin + first, head * a.head_dim);
      task.k = qkv.at(origin, (a.heads + kv) * a.head_dim);
      task.v = qkv.at(origin, (a.heads + a.kv_heads + kv) * a.head_dim);
      task.y = y.at(origin + first, head * a.head_dim);
      task.lse = lse + (sequence * a.heads + head) * a.sequence + first;
      task.lse_stride = a.sequence;
      task.starts = documents ? starts + origin : nullptr;
      task.position = first;
      task.rows = std::min(rows, a.sequence - first);
      task.tile_rows = rows;
      task.group = a.group;
      task.head_dim = a.head_dim;
      task.scale = a.scale;
      attention_forward(task, work + worker * floats);
    });
  });
}

std::unique_ptr<Kernel> make_cached(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 3, 3, 1, 1);
  const Heads a(op, input(op, tensors, 0), output(op, tensors, 0));
  const int64_t cache_stride = 2 * a.kv_heads * a.head_dim;
  STRATA_CHECK(rows_of(input(op, tensors, 1)) == (Rows{a.sequence, cache_stride}) &&
               input(op, tensors, 1).dtype == a.type);
  const int64_t rows = attention_queries(a.kv_heads, a.group, a.tokens, a.head_dim, threads);
  const int64_t floats = AttentionForwardTiles(a.head_dim, a.group, rows).total;
  check_workspace(op, tensors, threads);
  return make_kernel([=](Operands operands, const Launch&) {
    const ReadRows qkv = a.read(operands[0], a.stride);
    const WriteRows cache = a.write(operands[1], cache_stride), y = a.write(operands[3], a.y_stride);
    float* work = pointer<float>(operands[4]);
    const Positions now = new_positions(*pointer<const ops::StepInputs>(operands[2]), a.tokens, a.sequence);
    const int64_t bytes = size_of(a.type);
    for (int64_t row = 0; row < now.count; ++row)
      std::memcpy(cache.at(now.first + row).data, qkv.at(row, a.heads * a.head_dim).data,
                  static_cast<size_t>(cache_stride * bytes));
    std::memset(y.at(now.count).data, 0, static_cast<size_t>((a.tokens - now.count) * a.y_stride * bytes));
    const ReadRows cached = a.read(operands[1], cache_stride);
    const int64_t tiles = divide_up(now.count, rows);
    parallel_tasks(threads, a.kv_heads * tiles, [=](int64_t index, int worker) {
      const int64_t first = (tiles - 1 - index / a.kv_heads) * rows, kv = index % a.kv_heads, head = kv * a.group;
      AttentionForwardTask task;
      task.q = qkv.at(first, head * a.head_dim);
      task.k = cached.at(0, kv * a.head_dim);
      task.v = cached.at(0, (a.kv_heads + kv) * a.head_dim);
      task.y = y.at(first, head * a.head_dim);
      task.position = now.first + first;
      task.rows = std::min(rows, now.count - first);
      task.tile_rows = rows;
      task.group = a.group;
      task.head_dim = a.head_dim;
      task.scale = a.scale;
      attention_forward(task, work + worker * floats);
    });
  });
}

std::unique_ptr<Kernel> make_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 4, 5, 1, 1);
  const Heads a(op, input(op, tensors, 1), input(op, tensors, 2));
  const ops::Tensor &dy = input(op, tensors, 0), &dqkv = output(op, tensors, 0);
  STRATA_CHECK(rows_of(dy) == (Rows{a.tokens, a.y_stride}) && rows_of(dqkv) == (Rows{a.tokens, a.stride}));
  STRATA_CHECK(dy.dtype == a.type && dqkv.dtype == a.type && a.tokens % a.sequence == 0);
  check_statistics(input(op, tensors, 3), a);
  const bool documents = has_documents(op, tensors, 4, a);
  const int64_t batch = a.tokens / a.sequence, groups = batch * a.kv_heads,
                chunks = attention_chunks(a.sequence, a.kv_heads);
  const int64_t floats = AttentionBackwardTiles(a.head_dim, a.group, a.sequence, chunks).total;
  const AttentionQueryGradients parts(a.head_dim, a.sequence, chunks);
  check_workspace(op, tensors, threads);
  return make_kernel([=](Operands operands, const Launch&) {
    const size_t out = documents ? 5 : 4;
    const ReadRows from_dy = a.read(operands[0], a.y_stride), qkv = a.read(operands[1], a.stride);
    const ReadRows y = a.read(operands[2], a.y_stride);
    const float* lse = pointer<const float>(operands[3]);
    const int32_t* starts = documents ? pointer<const int32_t>(operands[4]) : nullptr;
    const WriteRows to = a.write(operands[out], a.stride);
    float* work = pointer<float>(operands[out + 1]);
    float* sums = work + attention_workers(threads, groups * chunks) * floats;
    parallel_tasks(threads, groups * chunks, [=](int64_t index, int worker) {
      const int64_t chunk = index / groups, sequence = index % groups / a.kv_heads, kv = index % a.kv_heads;
      const int64_t head = kv * a.group, origin = sequence * a.sequence, column = head * a.head_dim;
      const int64_t k = (a.heads + kv) * a.head_dim, v = k + a.kv_heads * a.head_dim;
      AttentionBackwardTask task;
      task.q = qkv.at(origin, column);
      task.k = qkv.at(origin, k);
      task.v = qkv.at(origin, v);
      task.dy = from_dy.at(origin, column);
      task.y = y.at(origin, column);
      task.dq = to.at(origin, column);
      task.dk = to.at(origin, k);
      task.dv = to.at(origin, v);
      task.lse = lse + (sequence * a.heads + head) * a.sequence;
      task.lse_stride = a.sequence;
      if (chunks > 1) {
        task.dq_parts = sums + (sequence * a.heads + head) * parts.total + parts.part[chunk];
        task.dq_parts_stride = parts.total;
      }
      task.starts = documents ? starts + origin : nullptr;
      task.begin = attention_chunk_begin(a.sequence, chunks, chunk);
      task.end = attention_chunk_begin(a.sequence, chunks, chunk + 1);
      task.sequence = a.sequence;
      task.chunks = chunks;
      task.group = a.group;
      task.head_dim = a.head_dim;
      task.scale = a.scale;
      attention_gradients(task, work + worker * floats);
    });
    if (chunks == 1) return;
    const int64_t tiles = divide_up(a.sequence, attention_tile);
    parallel_for(threads, batch * a.heads * tiles, 1, [=](int64_t begin, int64_t end) {
      for (int64_t index = begin; index < end; ++index) {
        const int64_t sequence = index / tiles / a.heads, head = index / tiles % a.heads;
        AttentionSumTask task;
        task.parts = sums + (sequence * a.heads + head) * parts.total;
        task.dq = to.at(sequence * a.sequence, head * a.head_dim);
        task.begin = index % tiles * attention_tile;
        task.end = std::min(task.begin + attention_tile, a.sequence);
        task.sequence = a.sequence;
        task.chunks = chunks;
        task.head_dim = a.head_dim;
        task.scale = a.scale;
        attention_sum(task);
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_attention(const ops::Op& op, Tensors tensors, int threads) {
  switch (op.kind) {
    case ops::Kind::attention: return make_forward(op, tensors, threads);
    case ops::Kind::cached_attention: return make_cached(op, tensors, threads);
    default: return make_backward(op, tensors, threads);
  }
}

}  // namespace strata::device::cpu
