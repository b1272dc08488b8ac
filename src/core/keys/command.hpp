// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "core/text/text.hpp"

namespace lockstep {

/// An option of a command, such as `--from PATH`. It is not part of the configuration.
struct CommandOption {
  std::string name;        ///< "from"
  std::string value = {};  ///< name of its value in help, such as "PATH"; empty = it has no value
  std::string help = {};
  bool is_required = false;
  std::string elsewhere = {};  ///< elsewhere for messages: the option that other commands have in its place
};

/// The syntax of a command.
struct CommandSpec {
  std::string name;
  std::string help;
  std::vector<std::string> words = {};  ///< names in help of the words that follow the command, such as "FILE"
  std::size_t optional_words = 0;       ///< number of these that can be omitted, from the last one on
  std::size_t more_words = 0;           ///< number of further words that are accepted
  std::vector<CommandOption> options = {};
  KeySpecs keys = {};  ///< keys of the configuration that belong to this command

  std::size_t min_words() const noexcept { return words.size() - optional_words; }
  std::size_t max_words() const noexcept { return words.size() + more_words; }
};

/// A row of the table of commands of a program.
/// @tparam Function  type of the function that executes the command
template <class Function>
struct CommandRow : CommandSpec {
  Function* run;
};

template <class Function>
std::vector<CommandSpec> specs_of(const std::vector<CommandRow<Function>>& rows) {
  return {rows.begin(), rows.end()};
}

/// The sentence for an unknown command, with the known names and the most similar one.
/// @param word  as messages show it
inline std::string unknown_command(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_name(word, names);
  return "command '" + word + "' is unknown; choose one of: " + joined(names) +
         (near.empty() ? "" : " (did you mean '" + near + "'?)");
}

}  // namespace lockstep
