// SPDX-License-Identifier: BSD-3-Clause
// The section of a report about the last evaluation.
#pragma once

#include <string>

#include "report/files/artifacts.hpp"

namespace lockstep::report {

/// Confusion matrix, the most frequent mistakes, numbers by class, the CMC curve, and other tables as they are; ""
/// where there is no table.
std::string tables_section(const std::vector<Table>& tables);

/// A grid of images with their captions, the wrong ones marked; "" where there is none.
std::string pictures_section(const std::vector<Base64Image>& pictures);

}  // namespace lockstep::report
