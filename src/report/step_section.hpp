// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "report/run_data.hpp"

namespace lockstep::report {

/// Where the time of a step goes: its sections, what ranks wait for, and with ddp.report the buckets' timeline; ""
/// where nothing of that was measured.
std::string step_section(const RunData& run);

}  // namespace lockstep::report
