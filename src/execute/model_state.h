#pragma once
// A model's parameters between the host and a program's buffers: first values, reading and writing by name.

#include <cstdint>
#include <span>
#include <vector>

#include "execute/executor.h"
#include "model/unit.h"

namespace strata::execute {

/// First values of one parameter, a pure function of (seed, global name, index); rows beyond true_rows are zero.
/// `out` holds parameter.shape.elements().
void initial_values(const model::Unit& unit, const model::Parameter& parameter, uint64_t seed, std::span<float> out);

/// Clears what persists (weights with their padding, moments, caches), fills the constants.
void reset(Executor& executor, const model::Config& config);

/// Writes what this rank holds of a parameter, out of all its values (row-major, padding rows included), rounded to the
/// compute type as an update does.
void write_parameter(Executor& executor, const model::Unit& unit, const model::Parameter& parameter,
                     std::span<const float> values);

/// The cut of a unit's flat vector that a rank keeps for all: its optimizer shard in a program that trains, else its shard
/// of the weights; empty where another rank holds the same. Over all ranks these make up the vector.
layout::Cut kept_by(const step::Program& program, int unit, int64_t rank);

/// Values of a range of a unit's flat vector inside what this rank keeps: of its weights (the fp32 master where there is
/// one) or, with `role` gradient, its gradient (of an inspected program).
void read_range(const Executor& executor, int unit, ops::Role role, const layout::Cut& range, std::span<float> values);

/// Elements from number `first` of a buffer that holds values of a floating-point type.
void read_floats(const Executor& executor, ops::Role role, int unit, int micro_batch, DType dtype, int64_t first,
                 std::span<float> values);

}  // namespace strata::execute
