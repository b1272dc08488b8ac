// SPDX-License-Identifier: BSD-3-Clause

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <map>

#include "core/text/text.hpp"
#include "trainer/commands/commands.hpp"

namespace lockstep::trainer {

namespace {

std::string words(const std::vector<std::string>& all) { return joined(all, " "); }

/// The branches of `case $key`: keys with the same values share one.
std::string value_branches(const KeySpecs& keys) {
  std::map<std::string, std::vector<std::string>> keys_of_values;
  for (const KeySpec& key : keys) {
    std::vector<std::string> values = key.choices;
    for (const KeySpec& part : key.parts) {
      if (std::ranges::find(values, part.name) == values.end()) values.push_back(part.name);
    }
    if (key.type == KeyType::boolean) values = {"true", "false"};
    if (!values.empty()) keys_of_values[words(values)].push_back("--" + key.name);
  }
  std::string branches;
  for (const auto& [values, names] : keys_of_values) {
    branches += "      " + joined(names, "|") + ") values='" + values + "' ;;\n";
  }
  return branches;
}

std::string option_branches(const std::vector<CommandSpec>& commands) {
  std::string branches;
  for (const CommandSpec& command : commands) {
    std::vector<std::string> options;
    for (const CommandOption& option : command.options) options.push_back("--" + option.name);
    if (!options.empty()) branches += "      " + command.name + ") options='" + words(options) + "' ;;\n";
  }
  return branches;
}

/// A script for bash. The word under the cursor is cut out of the line, because bash also divides it at '='.
std::string bash_script(const CommandJob& job) {
  std::vector<std::string> commands;
  for (const CommandSpec& command : job.commands) commands.push_back(command.name);
  std::vector<std::string> keys;
  for (const KeySpec& key : job.keys) keys.push_back("--" + key.name + "=");
  return "_lockstep_trainer() {\n"
         "  local line=${COMP_LINE:0:COMP_POINT} values= options= word key\n"
         "  word=${line##* }\n"
         "  COMPREPLY=()\n"
         "  if [[ $word == --*=* ]]; then\n"
         "    key=${word%%=*}\n"
         "    case $key in\n" +
         value_branches(job.keys) +
         "    esac\n"
         "    [[ -n $values ]] && compopt +o default\n"
         "    COMPREPLY=($(compgen -W \"$values\" -- \"${word#*=}\"))\n"
         "  elif [[ $word == -* ]]; then\n"
         "    case ${COMP_WORDS[1]} in\n" +
         option_branches(job.commands) +
         "    esac\n"
         "    COMPREPLY=($(compgen -W \"$options --help --version --config " +
         words(keys) +
         "\" -- \"$word\"))\n"
         "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
         "  elif ((COMP_CWORD == 1)); then\n"
         "    COMPREPLY=($(compgen -W '" +
         words(commands) +
         "' -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o default -F _lockstep_trainer trainer\n";
}

}  // namespace

ExitCode print_completion(const CommandJob& job, const config::Invocation& invocation) {
  const std::string& shell = invocation.words.at(0);
  job.world.all_or_throw([&] {
    if (shell == "bash" || shell == "zsh") return;
    throw ConfigError("completion " + shell + ": there are scripts for bash and zsh");
  });
  const std::string of_zsh =
      shell == "zsh" ? "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" : "";
  print_result(job.world, of_zsh + bash_script(job));
  return ExitCode::done;
}

}  // namespace lockstep::trainer
