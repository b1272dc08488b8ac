// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::data {

/// The lines of a text file, one class name each; empty lines at the end do not count.
/// @throws DataError  the file cannot be read, or a line between names is empty
std::vector<std::string> read_class_names(const std::string& path);

}  // namespace lockstep::data
