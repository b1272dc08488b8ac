// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <string>

namespace lockstep::report {

/// One JSON object. A double is written so that it reads back to the same bits; JSON knows no NaN and no infinity, so
/// those become the strings "NaN", "Infinity" and "-Infinity".
/// @param indent  blanks per level, or -1 = everything on one line
std::string to_json(const NamedValues& values, int indent = -1);

}  // namespace lockstep::report
