#pragma once
// A step program as text for a person and as JSON for programs: where the states are, each block once, the schedule, what is
// sent, memory at its peak.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "device/device.h"
#include "step/program.h"
#include "step/request.h"

namespace strata::step {

/// `planner`: what the program was built with.
std::string explain(const Request& request, const Program& program, const device::Planner& planner);
nlohmann::ordered_json explain_json(const Request& request, const Program& program, const device::Planner& planner);

}  // namespace strata::step
