// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <map>
#include <string>

namespace lockstep::config {

/// One line for each section, by name.
using SectionHelp = std::map<std::string, std::string>;

/// `--help`: commands, sections, the keys without a section, exit codes, examples. At most 100 columns wide.
std::string overview_help(const KeySpecs& specs, const SectionHelp& sections);

/// `--help=SECTION`: its keys in the order of declaration, each with help, accepted values and default.
/// @throws ConfigError  the section does not exist
std::string section_help(const std::string& section, const KeySpecs& specs, const SectionHelp& sections);

}  // namespace lockstep::config
