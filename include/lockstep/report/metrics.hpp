// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::report {

using MetricValue = std::variant<double, std::int64_t, std::string>;

/// Named values in the order in which a file shows them, such as step, epoch, loss.
using Metrics = std::vector<std::pair<std::string, MetricValue>>;

/// One JSON object. A double is written so that it reads back to the same bits; JSON knows no NaN and no infinity, so
/// those become the strings "NaN", "Infinity" and "-Infinity".
/// @param indent  blanks per level, or -1: everything on one line
std::string to_json(const Metrics& metrics, int indent = -1);

}  // namespace lockstep::report
