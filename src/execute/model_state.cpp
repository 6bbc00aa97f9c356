#include "execute/model_state.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "files/number_formats.h"
#include "model/forward.h"

namespace strata::execute {

using ops::Role;

void initial_values(const model::Unit& unit, const model::Parameter& parameter, uint64_t seed, std::span<float> out) {
  const int64_t row = parameter.shape.elements() / parameter.shape[0];
  const auto real = out.first(static_cast<size_t>(parameter.true_rows * row));
  std::fill(out.begin(), out.end(), 0.0f);
  if (parameter.init.kind == model::Init::Kind::one) std::fill(real.begin(), real.end(), 1.0f);
  if (parameter.init.kind != model::Init::Kind::normal) return;
  const uint64_t key = random_key(seed, unit.name + "." + parameter.name);
  for (size_t i = 0; i < real.size(); ++i) real[i] = static_cast<float>(parameter.init.std * normal(key, i));
}

void reset(Executor& executor, const model::Config& config) {
  for (const step::Buffer& buffer : executor.program().buffers) {
    if (!buffer.persistent()) continue;
    if (buffer.kind == step::BufferKind::constant) {
      const std::vector<float> table = model::rotary_table(config, config.sequence);
      executor.write(Role::constant, -1, -1, std::as_bytes(std::span(table)));
    } else {
      executor.zero(buffer.role, buffer.unit, buffer.micro_batch);
    }
  }
}

namespace {

/// Bytes of values in a program's compute type.
std::vector<std::byte> narrowed(std::span<const float> values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  files::narrow(values, dtype, bytes);
  return bytes;
}

}  // namespace

void write_parameter(Executor& executor, const model::Unit& unit, const model::Parameter& parameter,
                     std::span<const float> values) {
  const step::Program& program = executor.program();
  for (const Role role : {Role::master, Role::parameter}) {
    if (!program.has(role, unit.index)) continue;
    const DType dtype = role == Role::master ? DType::f32 : program.compute;
    const step::Buffer& buffer = program.find(role, unit.index, -1);
    const int64_t begin = std::max(parameter.offset, buffer.first),
                  end = std::min(parameter.offset + parameter.shape.elements(),
                                 buffer.first + buffer.bytes / size_of(dtype));
    if (begin >= end) continue;
    executor.write(
        role, unit.index, -1,
        narrowed(values.subspan(static_cast<size_t>(begin - parameter.offset), static_cast<size_t>(end - begin)),
                 dtype),
        (begin - buffer.first) * size_of(dtype));
  }
}

layout::Cut kept_by(const step::Program& program, int unit, int64_t rank) {
  const step::UnitLayout& layout = program.units[static_cast<size_t>(unit)];
  const int reach = program.goal == step::Goal::train ? layout.optimizer_reach : layout.weights_reach;
  if (program.mesh.index(rank, layout::Axis::pipeline) != layout.stage) return {};
  const std::vector<int64_t> position = program.mesh.coordinates(rank, layout::Axis::data);
  for (size_t level = static_cast<size_t>(reach); level < position.size(); ++level)
    if (position[level] != 0) return {};
  return layout::cut(layout.elements, program.widths, position, reach);
}

void read_range(const Executor& executor, int unit, Role role, const layout::Cut& range, std::span<float> values) {
  const step::Program& program = executor.program();
  if (role == Role::parameter && program.has(Role::master, unit)) role = Role::master;
  const DType dtype = role == Role::parameter ? program.compute : DType::f32;
  const step::Buffer& buffer = program.find(role, unit, -1);
  STRATA_CHECK(range.begin >= buffer.first);
  read_floats(executor, role, unit, -1, dtype, range.begin - buffer.first,
              values.first(static_cast<size_t>(range.elements)));
}

void read_floats(const Executor& executor, Role role, int unit, int micro_batch, DType dtype, int64_t first,
                 std::span<float> values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  executor.read(role, unit, micro_batch, bytes, first * size_of(dtype));
  files::widen(bytes, dtype, values);
}

}  // namespace strata::execute
