// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <string>
#include <vector>

#include "core/keys/command.hpp"

namespace lockstep::config {

/// `--help`: commands, sections, the keys without a section, exit codes, examples. At most 100 columns wide.
std::string overview_help(const KeySpecs& specs, const std::vector<CommandSpec>& commands);

/// `--help=SECTION`: its keys in the order of declaration, each with help, accepted values and default.
/// @throws ConfigError  the section does not exist
std::string section_help(const std::string& section, const KeySpecs& specs);

}  // namespace lockstep::config
