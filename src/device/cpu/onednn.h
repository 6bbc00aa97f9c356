#pragma once
// oneDNN's matrix products behind one face for its 2.x and 3.x interfaces, which differ in how a primitive is described.

#include <omp.h>
#include <dnnl.hpp>

#include <cstdint>
#include <optional>

#include "core/error.h"
#include "core/types.h"

namespace strata::device::cpu::onednn {

/// A matrix in memory, strides in elements; one of the strides is 1.
struct Matrix {
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 1;
  DType dtype = DType::f32;
  Matrix transposed() const { return {columns, rows, column_stride, row_stride, dtype}; }
};

/// The one place that says which element types products take: bf16 where the CPU multiplies it (elsewhere the library
/// would, if at all, slowly), fp16 never (2.6 has no such product on a CPU).
inline bool multiplies(DType dtype) {
  static const bool bf16 = [] {
    const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
  }();
  return dtype == DType::f32 || (dtype == DType::bf16 && bf16);
}

inline dnnl::memory::data_type data_type(DType dtype) {
  STRATA_CHECK(multiplies(dtype), "matrix products of {}", name_of(dtype));
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

inline dnnl::memory::desc describe(const Matrix& m) {
  return {{m.rows, m.columns}, data_type(m.dtype), {m.row_stride, m.column_stride}};
}

/// The CPU, shared by all kernels of the process: neither holds anything that a product changes.
inline const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}
inline const dnnl::stream& stream() {
  static const dnnl::stream cpu(engine());
  return cpu;
}

/// The library takes its thread count from OpenMP, when it plans a product and again when it runs it.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ThreadScope() { omp_set_num_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

using ProductPlan = dnnl::matmul::primitive_desc;

/// c = a b (+ bias, one value a column), or c += a b. The caller provides the scratch, and holds a ThreadScope.
inline ProductPlan plan_product(const Matrix& a, const Matrix& b, const Matrix& c, std::optional<DType> bias,
                                bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // whatever the library's environment variables say
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::memory::desc da = describe(a), db = describe(b), dc = describe(c);
#if DNNL_VERSION_MAJOR >= 3
  if (!bias) return ProductPlan(engine(), da, db, dc, attributes);
  return ProductPlan(engine(), da, db, describe({1, c.columns, c.columns, 1, *bias}), dc, attributes);
#else
  if (!bias) return ProductPlan(dnnl::matmul::desc(da, db, dc), attributes, engine());
  return ProductPlan(dnnl::matmul::desc(da, db, describe({1, c.columns, c.columns, 1, *bias}), dc), attributes,
                     engine());
#endif
}

inline int64_t scratch_bytes(const ProductPlan& plan) {
  return static_cast<int64_t>(plan.scratchpad_desc().get_size());
}

}  // namespace strata::device::cpu::onednn
