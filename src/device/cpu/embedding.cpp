// embedding and its backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

void add_rows(const float* a, const float* b, float* y, int64_t count) {
  const FloatTag d;
  each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR {
    store(d, hn::Add(load(d, a + i, span), load(d, b + i, span)), y + i, span);
  });
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(add_rows);

namespace {

constexpr int64_t least = 4096;  // elements a thread must have for another one to pay

void check_tokens(const int32_t* tokens, int64_t count, int64_t vocab) {
  for (int64_t t = 0; t < count; ++t)
    if (tokens[t] < 0 || tokens[t] >= vocab)
      throw run_error(
          "token {} of the micro-batch is {}, past the model's table of {}: is the dataset of this tokenizer?", t,
          tokens[t], vocab);
}

std::unique_ptr<Kernel> make_forward(const ops::Op& op, Tensors tensors, int threads) {
  const auto& a = op.as<ops::EmbeddingAttributes>();
  const size_t extra = a.cached ? 1 : 0;
  check_operands(op, 2 + extra, 3 + extra, 1, 1);
  const bool cached = a.cached, positioned = op.in.size() == 3 + extra;
  const int64_t count = input(op, tensors, 0).shape.elements(), sequence = a.sequence;
  const Rows table_rows = rows_of(input(op, tensors, 1));
  const int64_t width = table_rows.width;
  const int64_t limit = positioned ? rows_of(input(op, tensors, 2)).count : INT64_MAX;
  STRATA_CHECK(input(op, tensors, 0).dtype == DType::i32);
  STRATA_CHECK((rows_of(output(op, tensors, 0)) == Rows{count, width}));
  if (positioned) {
    STRATA_CHECK(rows_of(input(op, tensors, 2)).width == width);
    STRATA_CHECK(cached || (sequence >= 1 && sequence <= limit));
  }
  const auto add = HWY_DYNAMIC_DISPATCH(add_rows);
  return make_kernel([=](Operands operands, const Launch&) {
    size_t next = 0;
    const int32_t* tokens = pointer<const int32_t>(operands[next++]);
    const float* table = pointer<const float>(operands[next++]);
    const float* positions = positioned ? pointer<const float>(operands[next++]) : nullptr;
    const Positions real =
        cached ? new_positions(*pointer<const ops::StepInputs>(operands[next++]), count, limit) : Positions{0, count};
    float* y = pointer<float>(operands[next++]);
    check_tokens(tokens, real.count, table_rows.count);
    parallel_for(threads, count, divide_up(least, width), [=](int64_t begin, int64_t end) {
      const size_t bytes = static_cast<size_t>(width) * sizeof(float);
      for (int64_t t = begin; t < end; ++t) {
        float* out = y + t * width;
        if (t >= real.count) {
          std::memset(out, 0, bytes);
          continue;
        }
        const float* row = table + tokens[t] * width;
        const int64_t position = cached ? real.first + t : positioned ? t % sequence : 0;
        if (positioned)
          add(row, positions + position * width, out, width);
        else
          std::memcpy(out, row, bytes);
      }
    });
  });
}

/// Every element of a table is summed by one thread, over tokens in order.
std::unique_ptr<Kernel> make_backward(const ops::Op& op, Tensors tensors, int threads) {
  check_operands(op, 2, 2, 1, 2);
  const Rows rows = rows_of(input(op, tensors, 0)), table_rows = rows_of(output(op, tensors, 0));
  const int64_t width = rows.width, sequence = op.as<ops::EmbeddingAttributes>().sequence;
  const bool positioned = op.out.size() == 2, accumulate = op.accumulate;
  const int64_t position_rows = positioned ? rows_of(output(op, tensors, 1)).count : 0;
  STRATA_CHECK(input(op, tensors, 1).dtype == DType::i32 && input(op, tensors, 1).shape.elements() == rows.count);
  STRATA_CHECK(table_rows.width == width);
  if (positioned)
    STRATA_CHECK(rows_of(output(op, tensors, 1)).width == width && sequence >= 1 && sequence <= position_rows);
  const auto add = HWY_DYNAMIC_DISPATCH(add_rows);
  return make_kernel([=](Operands operands, const Launch&) {
    const float* dy = pointer<const float>(operands[0]);
    const int32_t* tokens = pointer<const int32_t>(operands[1]);
    float* dtable = pointer<float>(operands[2]);
    float* dpositions = positioned ? pointer<float>(operands[3]) : nullptr;
    check_tokens(tokens, rows.count, table_rows.count);
    const auto clear = [=](float* table, int64_t count) {
      parallel_for(threads, count, divide_up(least, width), [=](int64_t begin, int64_t end) {
        std::memset(table + begin * width, 0, static_cast<size_t>((end - begin) * width) * sizeof(float));
      });
    };
    if (!accumulate) clear(dtable, table_rows.count);
    // A thread owns columns, in blocks of a cache line.
    constexpr int64_t block = 16;
    parallel_for(threads, divide_up(width, block), divide_up(least, rows.count * block),
                 [=](int64_t begin, int64_t end) {
                   const int64_t column = begin * block, columns = std::min(end * block, width) - column;
                   for (int64_t t = 0; t < rows.count; ++t) {
                     float* to = dtable + tokens[t] * width + column;
                     add(to, dy + t * width + column, to, columns);
                   }
                 });
    if (!positioned) return;
    if (!accumulate) clear(dpositions, position_rows);
    parallel_for(threads, std::min(sequence, rows.count), divide_up(least, rows.count / sequence * width + 1),
                 [=](int64_t begin, int64_t end) {
                   for (int64_t position = begin; position < end; ++position)
                     for (int64_t t = position; t < rows.count; t += sequence) {
                       float* to = dpositions + position * width;
                       add(to, dy + t * width, to, width);
                     }
                 });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_embedding(const ops::Op& op, Tensors tensors, int threads) {
  return op.kind == ops::Kind::embedding ? make_forward(op, tensors, threads) : make_backward(op, tensors, threads);
}

}  // namespace strata::device::cpu
#endif
