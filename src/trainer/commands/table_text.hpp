// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::trainer {

/// Rows in columns for people, the first row being the heading. The first column is flush left, the others right.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

/// The number with at most six digits.
std::string brief(double value);

}  // namespace lockstep::trainer
