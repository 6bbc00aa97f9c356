#include "execute/model_state.h"

#include <algorithm>

#include "core/random.h"
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

void write_parameter(Executor& executor, const model::Unit& unit, const model::Parameter& parameter,
                     std::span<const float> values) {
  executor.write(Role::parameter, unit.index, -1, std::as_bytes(values),
                 parameter.offset * static_cast<int64_t>(sizeof(float)));
}

void read_parameter(const Executor& executor, const model::Unit& unit, const model::Parameter& parameter, Role role,
                    std::span<float> values) {
  executor.read(role, unit.index, -1, std::as_writable_bytes(values),
                parameter.offset * static_cast<int64_t>(sizeof(float)));
}

}  // namespace strata::execute
