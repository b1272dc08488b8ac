// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <string>
#include <vector>

#include "core/keys/command.hpp"

namespace lockstep::config {

/// `--help`: commands, the keys that most runs need, sections, exit codes, examples. At most 100 columns wide.
std::string overview_help(const KeySpecs& specs, const std::vector<CommandSpec>& commands);

/// `--help=commands`: the options of each command.
std::string command_help(const std::vector<CommandSpec>& commands);

/// `--help=NAME` with the help, the accepted values and the default of each key: a section (`optim`), a choice with the
/// keys that it reads (`optim.adamw`), the forms of an entry (`hooks`, `hooks.memory`), one key (`optim.lr`), the keys
/// for experts (`optim.expert`), everything about a section (`optim.all`), or everything (`all`).
/// @throws ConfigError  there is nothing of this name
std::string section_help(const std::string& name, const KeySpecs& specs);

}  // namespace lockstep::config
