// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// The name of a class, or its number if it has none.
std::string class_name(const std::vector<std::string>& names, std::int64_t c);

/// The numbers of each class in a table of an evaluation, by names such as "accuracy/cat": the share of the samples of
/// a class that are predicted as this class from the table "confusion", and the values of tables with one row and a
/// column per class, such as "iou". Undefined values are left out. Other tables have no such numbers.
/// @param names    of the classes; empty = their numbers
/// @param classes  number of classes
std::vector<std::pair<std::string, double>> class_numbers(const Table& table, const std::vector<std::string>& names,
                                                          std::size_t classes);

}  // namespace lockstep::engine
