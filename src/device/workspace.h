#pragma once
// How much workspace the CPU's kernels want, as formulas that need no library: what a plan-only build answers, and what
// the CPU device itself answers for every kind but matrix products, whose library has a say.

#include <cstdint>
#include <span>

#include "ops/op.h"

namespace strata::device {

/// Bytes for `op`; for matrix products 0, as the library's scratch is unknown here.
int64_t own_workspace(const ops::Op& op, std::span<const ops::Tensor> tensors, int threads);

/// Kinds attention, cached_attention, attention_backward (attention_workspace.cpp).
int64_t attention_workspace(const ops::Op& op, std::span<const ops::Tensor> tensors, int threads);

/// Backward of norms: the parameters' gradients are summed over chunks of this many rows, then over chunks in order, so
/// that the sum does not depend on threads.
inline constexpr int64_t norm_chunk_rows = 32;

}  // namespace strata::device
