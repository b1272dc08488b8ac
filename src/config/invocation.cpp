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

#include "core/home_path.hpp"
#include "core/table.hpp"
#include "core/text.hpp"

namespace lockstep::config {

namespace po = boost::program_options;

namespace {

const char* const kSpelling = "keys are written --section.key=value";

using Options = std::vector<po::option>;

po::options_description declared(const KeySpecs& specs) {
  po::options_description all;
  auto add = all.add_options();
  add("help,h", po::value<std::string>()->implicit_value(""));
  add("version", "");
  add("config", po::value<std::string>());
  std::set<std::string> names;  // several commands can have a switch of one name
  for (const Command& command : commands()) {
    for (const Switch& of : command.switches) {
      if (!names.insert(of.name).second) continue;
      if (of.value.empty()) {
        add(of.name.c_str(), "");
      } else {
        add(of.name.c_str(), po::value<std::string>());
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

Options split(const std::vector<std::string>& arguments, const KeySpecs& specs) {
  using namespace po::command_line_style;
  const po::options_description all = declared(specs);
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

/// The words that are neither keys nor switches; the first one is the command.
std::vector<std::string> words_of(const Options& options) {
  std::vector<std::string> words;
  for (const po::option& option : options) {
    if (option.position_key >= 0) words.push_back(with_home(option.value.at(0)));
  }
  return words;
}

/// @param words  in their order, not empty
std::string command_of(const std::vector<std::string>& words) {
  const std::vector<std::string> known = names_of(commands());
  const Command* called = nullptr;
  for (const Command& command : commands()) {
    if (command.name == words[0]) called = &command;
  }
  const bool is_known = called != nullptr;
  const std::size_t given = words.size() - 1;
  if (is_known && given < called->words.size()) {
    throw ConfigError("command line: " + called->name + " needs " + called->words[given] + ", the folder of a run");
  }
  const std::string& odd = is_known && given > called->words.size() ? words[called->words.size() + 1] : words[0];
  if (is_known && given == called->words.size()) return words[0];
  if (is_known || odd.find('=') != std::string::npos || odd.find('.') != std::string::npos) {
    throw ConfigError("command line: '" + odd + "' is not expected here; " + kSpelling);
  }
  const std::string near = nearest_name(odd, known);
  throw ConfigError("command line: command '" + odd + "' is unknown; choose one of: " + joined(known) +
                    (near.empty() ? "" : " (did you mean '" + near + "'?)"));
}

/// A word that begins with a dash and is neither a switch nor a declared key.
[[noreturn]] void throw_unknown(const po::option& option, Config& config) {
  const std::string& word = option.original_tokens.at(0);
  if (!word.starts_with("--")) throw ConfigError("command line: '" + word + "' is unknown; " + kSpelling);
  config.refuse_old_name(option.string_key, "command line");
  std::vector<std::string> names = {"config", "help", "version"};
  for (const Command& command : commands()) {
    for (const Switch& of : command.switches) names.push_back(of.name);
  }
  const std::string near = section_of(option.string_key).empty() ? nearest_name(option.string_key, names) : "";
  if (near.empty()) config.set(option.string_key, "", "command line");  // throws, and knows the nearest key
  throw ConfigError("command line: '--" + option.string_key + "' is unknown; did you mean '--" + near + "'?");
}

/// The command that has a switch of this name, or null = then it is a key.
const Command* owner_of(const std::string& name) {
  for (const Command& command : commands()) {
    for (const Switch& of : command.switches) {
      if (of.name == name) return &command;
    }
  }
  return nullptr;
}

void read_keys(const Options& options, Config& config) {
  for (const po::option& option : options) {
    const std::string& name = option.string_key;
    if (option.position_key >= 0 || name == "config" || owner_of(name) != nullptr) continue;
    config.set(name, option.value.at(0), "command line");
  }
}

bool has_switch(const std::string& command, const std::string& name) {
  return std::any_of(commands().begin(), commands().end(), [&](const Command& each) {
    return each.name == command && std::any_of(each.switches.begin(), each.switches.end(),
                                               [&name](const Switch& of) { return of.name == name; });
  });
}

/// The switches of the command; those of other commands have no place here.
void read_switches(const Options& options, Invocation& invocation) {
  for (const Command& command : commands()) {
    for (const Switch& of : command.switches) {
      const po::option* const found = last_of(options, of.name);
      const std::string value = found == nullptr || found->value.empty() ? "" : with_home(found->value[0]);
      if (command.name != invocation.command) {
        if (found == nullptr || has_switch(invocation.command, of.name)) continue;
        throw ConfigError("command line: --" + of.name + " is an option of the command " + command.name +
                          (of.elsewhere.empty() ? "" : "; " + of.elsewhere));
      }
      if (of.value.empty() ? found == nullptr : value.empty()) {
        if (!of.is_needed && found == nullptr) continue;
        throw ConfigError("command line: " + command.name + " needs --" + of.name + " " + of.value + " (" + of.help +
                          ")");
      }
      invocation.switches[of.name] = value;
    }
  }
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> rows = {
      {"train",
       "Trains a model. This is the default command",
       {{.name = "quiet", .help = "Print only warnings and errors, as with --log.level=warning"}}},
      {"eval",
       "Evaluates a checkpoint, or the latest one of a run, given by --from or --init.from",
       {{.name = "from",
         .value = "PATH",
         .help = "Folder of a run, or a checkpoint",
         .elsewhere = "see --init.from and --resume for training"},
        {.name = "json", .help = "Print JSON"},
        {.name = "predictions",
         .value = "FILE",
         .help = "Also write the predictions for all samples, as predict.out"}}},
      {"predict",
       "Writes what a model predicts for each sample to predict.out. The weights are given as for eval",
       {{.name = "from", .value = "PATH", .help = "Folder of a run, or a checkpoint"}}},
      {.name = "export",
       .help = "Writes the weights of a run of model torchscript into a copy of its archive, which Python loads",
       .switches = {{.name = "to", .value = "FILE", .help = "Output file, such as trained.pt", .is_needed = true}},
       .words = {"RUN"}},
      {"config",
       "Prints all keys with their values and the origin of each value",
       {{.name = "groups", .help = "Print the parameter groups of the optimizer instead of the keys"},
        {.name = "verbose", .help = "Also print the parameters of each group"}}},
      {"schedule",
       "Prints the values of sched.rule over the steps of a run, without starting it",
       {{.name = "plot", .value = "FILE", .help = "Output SVG file for a plot of the values"}}},
      {"lr-find",
       "Trains a few steps with increasing learning rates and suggests optim.lr. Writes no checkpoint",
       {{.name = "lowest", .value = "RATE", .help = "First learning rate (default 1e-7)"},
        {.name = "highest", .value = "RATE", .help = "Last learning rate (default 10)"},
        {.name = "steps", .value = "N", .help = "Maximum number of steps (default 100)"},
        {.name = "curve", .value = "FILE", .help = "Output SVG file for a plot of the losses"}}},
      {"data",
       "Describes the data set without training: counts, sizes, formats, duplicates, mean and standard deviation. If "
       "images are damaged, they are listed and the exit code is 3",
       {{.name = "sheet",
         .value = "FILE",
         .help = "Write a contact sheet of samples and training draws, as .html or .png"},
        {.name = "speed", .value = "SECONDS", .help = "Measure reading, decoding and transforms for this time"},
        {.name = "check", .help = "Decode all images"},
        {.name = "json", .help = "Print JSON"},
        {.name = "list-transforms",
         .help = "Print the transforms and their options instead. With --sheet, write a picture for each"}}},
      {.name = "report", .help = "Writes report.html into the folder of a run", .words = {"RUN"}},
      {.name = "compare",
       .help = "Writes a page that compares the curves of two runs",
       .switches = {{.name = "out", .value = "FILE", .help = "Output file (default compare.html)"}},
       .words = {"RUN", "another RUN"}},
  };
  return rows;
}

Invocation parse(const std::vector<std::string>& arguments, const KeySpecs& specs, const std::vector<IniText>& base) {
  Invocation invocation{.config = Config(specs)};
  const Options options = split(arguments, specs);
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
    if (option.unregistered) throw_unknown(option, invocation.config);
  }
  invocation.words = words_of(options);
  if (!invocation.words.empty()) {
    invocation.command = command_of(invocation.words);
    invocation.words.erase(invocation.words.begin());
  }
  read_switches(options, invocation);
  for (const auto& [source, text] : base) {
    invocation.config.read_ini(text, source, OldNames::translated);
  }
  for (const po::option& option : options) {
    if (option.string_key != "config") continue;
    if (option.value.at(0).empty()) throw_missing_value("config", specs);
    invocation.files.push_back(with_home(option.value[0]));
  }
  for (const std::string& file : invocation.files) invocation.config.read_file(file);
  read_keys(options, invocation.config);
  return invocation;
}

}  // namespace lockstep::config
