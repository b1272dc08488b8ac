// SPDX-License-Identifier: BSD-3-Clause
// The section of a report about fields.
#pragma once

#include <string>

#include "report/files/artifacts.hpp"

namespace lockstep::report {

/// Pictures of fields, each with its colors and their values, and charts of tables that have a title; "" where there
/// are none.
std::string fields_section(const Artifacts& artifacts);

}  // namespace lockstep::report
