#pragma once
// A step program as text for a person and as JSON for programs: each block once, the schedule, memory at its peak.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "step/program.h"
#include "step/request.h"

namespace strata::step {

std::string explain(const Request& request, const Program& program);
nlohmann::ordered_json explain_json(const Request& request, const Program& program);

}  // namespace strata::step
