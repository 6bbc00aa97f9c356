// embedding and its backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/embedding.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pairs-inl.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

/// Rows [begin, end): y[t] = table[tokens[t]] (+ its position's row). Rows of the table lie anywhere, so while one is
/// taken the next but one is asked for.
void gather(DType type, const Gather& g, int64_t begin, int64_t end) {
  constexpr int64_t ahead = 2;
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    const T *table = static_cast<const T*>(g.table), *positions = static_cast<const T*>(g.positions);
    const int64_t width = g.width;
    for (int64_t row = begin; row < end; ++row) {
      const T *from = table + g.tokens[row] * width, *next = table + g.tokens[std::min(row + ahead, end - 1)] * width;
      T* to = static_cast<T*>(g.y) + row * width;
      if (positions == nullptr) {
        prefetch(next, width);
        std::memcpy(to, from, static_cast<size_t>(width) * sizeof(T));
        continue;
      }
      const T* position = positions + (g.first + row % g.sequence) * width;
      each_pair(width, [=](int64_t i, auto span) HWY_ATTR {
        prefetch(next + i, pair_size);
        store_pair(Add(load_pair(from + i, span), load_pair(position + i, span)), to + i, span);
      });
    }
  });
}

template <class T>
HWY_INLINE void sum_row(const T* dy, int64_t width, const int32_t* next, int32_t first, float* to, bool accumulate,
                        int64_t columns) {
  const FloatTag d;
  each_vector(d, columns, [=](int64_t i, auto span) HWY_ATTR {
    auto sum = accumulate ? load(d, to + i, span) : hn::Zero(d);
    for (int32_t t = first; t >= 0; t = next[t]) sum = hn::Add(sum, load(d, dy + t * width + i, span));
    store(d, sum, to + i, span);
  });
}

/// Zeros that are not read again soon, past the caches where they are whole lines.
HWY_INLINE void clear(float* to, int64_t count) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (reinterpret_cast<uintptr_t>(to) % 64 == 0 && count % 16 == 0) {
    for (int64_t i = 0; i < count; i += lanes) hn::Stream(hn::Zero(d), d, to + i);
  } else {
    each_vector(d, count, [=](int64_t i, auto span) HWY_ATTR { store(d, hn::Zero(d), to + i, span); });
  }
}

/// A part of a table's gradient: to each row the rows of dy are added that `first` and `next` list for it, in order; -1
/// ends a list. dy and the table are `width` wide.
void sum_rows(DType type, const void* dy, const int32_t* first, const int32_t* next, float* table, int64_t width,
              bool accumulate, const TablePart& part) {
  with_storage(type, [=](auto t) HWY_ATTR {
    using T = decltype(t);
    for (int64_t row = part.first_row; row < part.last_row; ++row) {
      float* to = table + row * width + part.first_column;
      const int64_t columns = part.last_column - part.first_column;
      if (first[row] >= 0)
        sum_row(static_cast<const T*>(dy) + part.first_column, width, next, first[row], to, accumulate, columns);
      else if (!accumulate)
        clear(to, columns);
    }
  });
  hwy::FlushStream();
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device::cpu {

HWY_EXPORT(gather);
HWY_EXPORT(sum_rows);

namespace {

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
  const DType type = output(op, tensors, 0).dtype;
  const auto function = HWY_DYNAMIC_DISPATCH(gather);
  return make_kernel([=](Operands operands, const Launch&) {
    size_t next = 0;
    const int32_t* tokens = pointer<const int32_t>(operands[next++]);
    const void* table = pointer<const void>(operands[next++]);
    const void* positions = positioned ? pointer<const void>(operands[next++]) : nullptr;
    const Positions real =
        cached ? new_positions(*pointer<const ops::StepInputs>(operands[next++]), count, limit) : Positions{0, count};
    char* y = pointer<char>(operands[next++]);
    check_tokens(tokens, real.count, table_rows.count);
    const Gather shared = {tokens, table, positions, y, width, real.first, cached ? count : sequence};
    for_rows(threads, {count, width}, [=](int64_t begin, int64_t end) {
      const int64_t until = std::clamp(real.count, begin, end);
      function(type, shared, begin, until);
      const int64_t bytes = width * size_of(type);
      std::memset(y + until * bytes, 0, static_cast<size_t>((end - until) * bytes));
    });
  });
}

/// Every element of a table is summed by one thread, over tokens in order, and written once.
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
  STRATA_CHECK(op.workspace >= 0, "{} needs a workspace", ops::name_of(op.kind));
  const DType type = input(op, tensors, 0).dtype;
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_rows);
  return make_kernel([=](Operands operands, const Launch&) {
    size_t at = 0;
    const void* dy = pointer<const void>(operands[at++]);
    const int32_t* tokens = pointer<const int32_t>(operands[at++]);
    float* dtable = pointer<float>(operands[at++]);
    float* dpositions = positioned ? pointer<float>(operands[at++]) : nullptr;
    int32_t* first = pointer<int32_t>(operands[at++]);  // token of the micro-batch that first has this id
    int32_t* next = first + std::max(table_rows.count, position_rows);  // and the next one that has a token's id
    check_tokens(tokens, rows.count, table_rows.count);
    // Each thread writes rows of its own; where only the tokens' rows are added to, of which one may have most, columns
    // of its own, in blocks of a cache line.
    const auto add_to = [=](float* table, int64_t table_count) {
      constexpr int64_t block = 16;
      const auto add_part = [=](const TablePart& part) { sum(type, dy, first, next, table, width, accumulate, part); };
      if (accumulate)
        for_rows(threads, {divide_up(width, block), block * rows.count}, [=](int64_t begin, int64_t end) {
          add_part({0, table_count, begin * block, std::min(end * block, width)});
        });
      else
        for_rows(threads, {table_count, width}, [=](int64_t begin, int64_t end) { add_part({begin, end, 0, width}); });
    };
    const auto list = [=](int64_t table_count, const auto& row_of) {
      std::fill_n(first, table_count, -1);
      for (int64_t t = rows.count - 1; t >= 0; --t) {
        int32_t& head = first[row_of(t)];
        next[t] = head;
        head = static_cast<int32_t>(t);
      }
    };
    list(table_rows.count, [=](int64_t t) { return tokens[t]; });
    add_to(dtable, table_rows.count);
    if (!positioned) return;
    list(position_rows, [=](int64_t t) { return t % sequence; });
    add_to(dpositions, position_rows);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_embedding(const ops::Op& op, Tensors tensors, int threads) {
  return op.kind == ops::Kind::embedding ? make_forward(op, tensors, threads) : make_backward(op, tensors, threads);
}

}  // namespace strata::device::cpu
#endif
