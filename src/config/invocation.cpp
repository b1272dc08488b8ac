// SPDX-License-Identifier: BSD-3-Clause
#include "config/invocation.hpp"

#include <lockstep/core/error.hpp>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/option.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <set>

#include "core/system/home_path.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"

namespace lockstep::config {

namespace po = boost::program_options;

namespace {

const char* const kPlace = "command line: ";
const char* const kSpelling = "keys are written --section.key=value";

using Options = std::vector<po::option>;
using Commands = std::vector<CommandSpec>;

po::options_description declared(const KeySpecs& specs, const Commands& commands) {
  po::options_description all;
  auto add = all.add_options();
  add("help,h", po::value<std::string>()->implicit_value(""));
  add("version", "");
  add("config", po::value<std::string>());
  std::set<std::string> names;  // several commands can have an option of one name
  for (const CommandSpec& command : commands) {
    for (const CommandOption& option : command.options) {
      if (!names.insert(option.name).second) continue;
      if (option.value.empty()) {
        add(option.name.c_str(), "");
      } else {
        add(option.name.c_str(), po::value<std::string>());
      }
    }
  }
  for (const KeySpec& spec : specs) add(spec.name.c_str(), po::value<std::string>());
  return all;
}

/// Boost refuses `--data.path=`, which sets a text to nothing.
Options parse_empty_value(std::vector<std::string>& arguments) {
  const std::string word = arguments.front();
  if (!word.starts_with("--") || word.find('=') != word.size() - 1) return {};
  arguments.erase(arguments.begin());
  po::option option(word.substr(2, word.size() - 3), {""});
  option.original_tokens = {word};
  return {option};
}

[[noreturn]] void throw_missing_value(const std::string& name, const KeySpecs& specs) {
  const auto spec = std::find_if(specs.begin(), specs.end(), [&name](const KeySpec& s) { return s.name == name; });
  if (spec == specs.end()) throw ConfigError("command line: --" + name + " needs a path");
  if (spec->type == KeyType::boolean) {
    throw ConfigError("command line: --" + name + " needs a value: write --" + name + "=true or --" + name + "=false");
  }
  throw ConfigError("command line: --" + name + " needs a value: " + range_of(*spec));
}

Options split(const std::vector<std::string>& arguments, const KeySpecs& specs, const Commands& commands) {
  using namespace po::command_line_style;
  const po::options_description all = declared(specs, commands);
  try {
    Options options = po::command_line_parser(arguments)
                          .options(all)
                          .style(unix_style & ~allow_guessing)
                          .extra_style_parser(parse_empty_value)
                          .allow_unregistered()
                          .run()
                          .options;
    for (const po::option& option : options) {
      const bool took_next_word = option.original_tokens.size() == 2 && !option.value.empty();
      if (took_next_word && option.value[0].starts_with("--")) throw_missing_value(option.string_key, specs);
    }
    return options;
  } catch (const po::invalid_command_line_syntax& error) {
    if (error.kind() == po::invalid_syntax::missing_parameter) {
      const std::string name = error.get_option_name();
      throw_missing_value(name.substr(std::min(name.find_first_not_of('-'), name.size())), specs);
    }
    throw ConfigError("command line: " + std::string(error.what()));
  } catch (const po::error& error) {
    throw ConfigError("command line: " + std::string(error.what()));
  }
}

const po::option* last_of(const Options& options, const std::string& name) {
  const auto found =
      std::find_if(options.rbegin(), options.rend(), [&name](const po::option& o) { return o.string_key == name; });
  return found == options.rend() ? nullptr : &*found;
}

/// The words that are neither keys nor options; the first one is the command.
std::vector<std::string> words_of(const Options& options) {
  std::vector<std::string> words;
  for (const po::option& option : options) {
    if (option.position_key >= 0) words.push_back(with_home(option.value.at(0), kPlace));
  }
  return words;
}

/// @param words  in their order, not empty
std::string command_of(const std::vector<std::string>& words, const Commands& commands) {
  const CommandSpec* called = nullptr;
  for (const CommandSpec& command : commands) {
    if (command.name == words[0]) called = &command;
  }
  const bool is_known = called != nullptr;
  const std::size_t given = words.size() - 1;
  if (is_known && given < called->words.size()) {
    throw ConfigError("command line: " + called->name + " needs " + called->words[given] +
                      (called->words[given].ends_with("RUN") ? ", the folder of a run" : ""));
  }
  const std::string& odd = is_known && given > called->words.size() ? words[called->words.size() + 1] : words[0];
  if (is_known && given == called->words.size()) return words[0];
  if (is_known || odd.find('=') != std::string::npos || odd.find('.') != std::string::npos) {
    throw ConfigError("command line: '" + odd + "' is not expected here; " + kSpelling);
  }
  throw ConfigError("command line: " + unknown_command(odd, names_of(commands)));
}

/// A word that begins with a dash and is neither an option nor a declared key.
[[noreturn]] void throw_unknown(const po::option& option, const Commands& commands, Config& config) {
  const std::string& word = option.original_tokens.at(0);
  if (!word.starts_with("--")) throw ConfigError("command line: '" + word + "' is unknown; " + kSpelling);
  config.refuse_former(option.string_key, option.value.empty() ? "" : option.value[0], "command line");
  std::vector<std::string> names = {"config", "help", "version"};
  for (const CommandSpec& command : commands) {
    for (const CommandOption& known : command.options) names.push_back(known.name);
  }
  const std::string near = section_of(option.string_key).empty() ? nearest_name(option.string_key, names) : "";
  if (near.empty()) config.set(option.string_key, "", "command line");  // throws, and knows the nearest key
  throw ConfigError("command line: '--" + option.string_key + "' is unknown; did you mean '--" + near + "'?");
}

bool has_option(const CommandSpec& command, const std::string& name) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [&name](const CommandOption& option) { return option.name == name; });
}

void read_keys(const Options& options, const Commands& commands, Config& config) {
  for (const po::option& option : options) {
    const std::string& name = option.string_key;
    const bool is_of_command = std::any_of(commands.begin(), commands.end(),
                                           [&name](const CommandSpec& command) { return has_option(command, name); });
    if (option.position_key >= 0 || name == "config" || is_of_command) continue;
    config.set(name, option.value.at(0), "command line", Author::user);
  }
}

/// The options of the command; those of other commands are refused.
void read_options(const Options& given, const Commands& commands, Invocation& invocation) {
  const CommandSpec& called = find_row(commands, invocation.command, "command line");
  for (const CommandSpec& command : commands) {
    for (const CommandOption& option : command.options) {
      const po::option* const found = last_of(given, option.name);
      const std::string value = found == nullptr || found->value.empty() ? "" : with_home(found->value[0], kPlace);
      if (&command != &called) {
        if (found == nullptr || has_option(called, option.name)) continue;
        throw ConfigError("command line: --" + option.name + " is an option of the command " + command.name +
                          (option.elsewhere.empty() ? "" : "; " + option.elsewhere));
      }
      if (option.value.empty() ? found == nullptr : value.empty()) {
        if (!option.is_required && found == nullptr) continue;
        throw ConfigError("command line: " + command.name + " needs --" + option.name + " " + option.value + " (" +
                          option.help + ")");
      }
      invocation.options[option.name] = value;
    }
  }
}

}  // namespace

Invocation parse(const std::vector<std::string>& arguments, const KeySpecs& specs,
                 const std::vector<CommandSpec>& commands, const std::vector<IniText>& base) {
  Invocation invocation{.command = commands.front().name, .config = Config(specs)};
  const Options options = split(arguments, specs, commands);
  if (const po::option* const help = last_of(options, "help")) {
    invocation.wants_help = true;
    invocation.help_section = help->value.empty() ? "" : help->value[0];
    return invocation;
  }
  if (last_of(options, "version") != nullptr) {
    invocation.wants_version = true;
    return invocation;
  }
  for (const po::option& option : options) {
    if (option.unregistered) throw_unknown(option, commands, invocation.config);
  }
  invocation.words = words_of(options);
  if (!invocation.words.empty()) {
    invocation.command = command_of(invocation.words, commands);
    invocation.words.erase(invocation.words.begin());
  }
  read_options(options, commands, invocation);
  for (const auto& [source, text] : base) {
    invocation.config.read_ini(text, source, OldNames::translated);
  }
  for (const po::option& option : options) {
    if (option.string_key != "config") continue;
    if (option.value.at(0).empty()) throw_missing_value("config", specs);
    invocation.files.push_back(with_home(option.value[0], kPlace));
  }
  for (const std::string& file : invocation.files) invocation.config.read_file(file);
  read_keys(options, commands, invocation.config);
  return invocation;
}

}  // namespace lockstep::config
