// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "schedules.hpp"

namespace lockstep::testing::reference {

/// The rule, to be counted by=run, of a schedule over how far a run is.
std::string where_rule(const std::string& class_name, const Json& args);

}  // namespace lockstep::testing::reference
