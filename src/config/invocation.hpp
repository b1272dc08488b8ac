// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <map>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "core/keys/command.hpp"

namespace lockstep::config {

/// The arguments after `trainer`.
struct Invocation {
  std::string command = {};             ///< name of a command
  Config config;                        ///< defaults, then the files in their order, then the keys of the command line
  std::vector<std::string> files = {};  ///< files of --config, in order
  std::map<std::string, std::string> options = {};  ///< options of the command, by name, with their values
  std::vector<std::string> words = {};              ///< words after the command, one for each of CommandSpec::words
  bool wants_version = false;                       ///< --version
  bool wants_help = false;                          ///< --help; then, and for --version, no file was read
  std::string help_section = {};                    ///< SECTION of --help=SECTION
};

/// The configuration of an earlier run as it was stored, in the form of an INI file. Old names of keys are translated.
struct IniText {
  std::string source;  ///< name in messages and origins
  std::string text;
};

/// Reads the command line and the files that it names.
///
///     [COMMAND] [its words] [its options] [--config FILE]... [--section.key=value]... [--help[=SECTION]] [--version]
///
/// @param arguments   without the program's name
/// @param commands    the first one is the default
/// @param base        read before the files of --config: the configuration of the run that eval looks at
/// @throws ConfigError  what the user should write instead, in one sentence
Invocation parse(const std::vector<std::string>& arguments, const KeySpecs& specs,
                 const std::vector<CommandSpec>& commands, const std::vector<IniText>& base = {});

}  // namespace lockstep::config
