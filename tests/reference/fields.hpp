// SPDX-License-Identifier: BSD-3-Clause
// Cases of tests/golden/fields as settings of data.name = fields.
#pragma once

#include <lockstep/data/source.hpp>

#include <filesystem>
#include <string>

#include "support/reference.hpp"

namespace lockstep::testing::reference {

/// The file or folder `name` of the topic, unpacked.
std::filesystem::path fields_path(const std::string& name);

/// Section `data` for the files, variables, layouts and windows of a case of windows.json, statistics.json or
/// malformed.json.
/// @throws ConfigError  a value is refused
Section fields_section(const Json& one_case);

void check_windows(const Json& one_case);
void check_window_count(const Json& one_case);
void check_pdebench_split(const Json& one_case);
void check_malformed(const Json& one_case);

}  // namespace lockstep::testing::reference
