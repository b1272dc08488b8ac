// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <map>
#include <string>
#include <vector>

#include "config/config.hpp"

namespace lockstep::config {

/// The arguments after `trainer`.
struct Invocation {
  std::string command = "train";        ///< one of commands()
  Config config;                        ///< defaults, then the files in their order, then the keys of the command line
  std::vector<std::string> files = {};  ///< files of --config, in order
  std::map<std::string, std::string> switches = {};  ///< of the command, by name, with their values
  std::vector<std::string> words = {};               ///< behind the command, one for each of Command::words
  bool wants_version = false;                        ///< --version
  bool wants_help = false;                           ///< --help; then, and for --version, no file was read
  std::string help_section = {};                     ///< of --help=SECTION
};

/// The configuration of an earlier run as it was stored, in the form of an INI file. Old names of keys are translated.
struct IniText {
  std::string source;  ///< name in messages and origins
  std::string text;
};

/// Reads the command line and the files that it names.
///
///     [COMMAND] [its words] [its switches] [--config FILE]... [--section.key=value]... [--help[=SECTION]] [--version]
///
/// @param arguments   without the program's name
/// @param base        read before the files of --config: the configuration of the run that eval looks at
/// @throws ConfigError  what the user should write instead, in one sentence
Invocation parse(const std::vector<std::string>& arguments, const KeySpecs& specs,
                 const std::vector<IniText>& base = {});

/// An option of one command, such as `--from PATH`. It is not part of the configuration.
struct Switch {
  std::string name;
  std::string value = {};  ///< what it takes, in a word for help; empty = nothing
  std::string help;
  bool is_needed = false;
  std::string elsewhere = {};  ///< for messages: what another command has in its place
};

/// A sub-command and its line of help.
struct Command {
  std::string name;
  std::string help;
  std::vector<Switch> switches = {};
  std::vector<std::string> words = {};  ///< what has to stand behind it, in a word each: "RUN"
};
const std::vector<Command>& commands();

}  // namespace lockstep::config
