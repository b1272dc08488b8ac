// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "report/page/run_data.hpp"

namespace lockstep::report {

/// The places where the time of a step goes: its sections, what ranks wait for, and with ddp.report the buckets'
/// timeline; "" where nothing of that was measured.
std::string step_section(const PageData& run);

}  // namespace lockstep::report
