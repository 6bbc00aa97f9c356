#include "execute/model_state.h"

#include <algorithm>

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
  if (program.has(Role::master))
    executor.write(Role::master, unit.index, -1, std::as_bytes(values), parameter.offset * size_of(DType::f32));
  executor.write(Role::parameter, unit.index, -1, narrowed(values, program.compute),
                 parameter.offset * size_of(program.compute));
}

void read_parameter(const Executor& executor, const model::Unit& unit, const model::Parameter& parameter, Role role,
                    std::span<float> values) {
  const step::Program& program = executor.program();
  if (role == Role::parameter && program.has(Role::master)) role = Role::master;
  const DType dtype = role == Role::parameter ? program.compute : DType::f32;
  read_floats(executor, role, unit.index, -1, dtype, parameter.offset, values);
}

void read_floats(const Executor& executor, Role role, int unit, int micro_batch, DType dtype, int64_t first,
                 std::span<float> values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  executor.read(role, unit, micro_batch, bytes, first * size_of(dtype));
  files::widen(bytes, dtype, values);
}

}  // namespace strata::execute
