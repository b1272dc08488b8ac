// SPDX-License-Identifier: BSD-3-Clause
#include "config/help.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cctype>
#include <utility>

#include "config/config.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::config {

namespace {

constexpr std::size_t kColumns = 100;

/// `text` in lines that begin at column `indent` and end before column 100; the first continues a line begun already.
std::string wrapped(const std::string& text, std::size_t indent) {
  TextReader words(text);
  std::string lines;
  std::size_t column = indent;
  for (std::string word; words >> word;) {
    const bool is_first = column == indent;
    if (!is_first && column + 1 + word.size() > kColumns) {
      lines += "\n" + std::string(indent, ' ') + word;
      column = indent + word.size();
    } else {
      lines += (is_first ? "" : " ") + word;
      column += word.size() + (is_first ? 0 : 1);
    }
  }
  return lines + "\n";
}

using Rows = std::vector<std::pair<std::string, std::string>>;

/// A heading and two columns.
std::string paragraph(const std::string& heading, const Rows& rows) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::string text = "\n" + wrapped(heading, 0);
  for (const auto& [name, help] : rows) {
    const std::size_t gap = help.empty() ? 0 : width - name.size() + 2;
    text += "  " + name + std::string(gap, ' ') + wrapped(help, width + 4);
  }
  return text;
}

std::string describe(const KeySpec& spec) {
  std::string range = range_of(spec);
  for (const std::string article : {"an ", "a "}) {
    if (range.starts_with(article)) range.erase(0, article.size());
  }
  range[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(range[0])));
  const bool is_unset = spec.default_value.empty() || spec.default_value == "nan";
  const std::string shown = is_unset ? "none" : spec.default_value;
  return spec.help + (spec.help.empty() ? "" : ". ") + range + "; default " + shown;
}

Rows key_rows(const KeySpecs& specs) {
  Rows rows;
  for (const KeySpec& spec : specs) rows.emplace_back("--" + spec.name, describe(spec));
  return rows;
}

/// Inside a text that holds options, commas separate these.
std::string with_slashes(std::string help) {
  const std::string commas = "separated by commas";
  const std::size_t position = help.find(commas);
  return position == std::string::npos ? help : help.replace(position, commas.size(), "separated by slashes");
}

/// The options that may stand in the text of a key that holds options of its own.
std::string describe_parts(const KeySpec& key) {
  std::string text;
  for (const KeySpec& part : key.parts) {
    Rows rows;
    for (const KeySpec& option : part.parts) rows.emplace_back(option.name, with_slashes(describe(option)));
    const std::string heading = key.name + ", " + part.name + ": ";
    text += paragraph(heading + part.help, rows);
  }
  return text;
}

/// The keys without a section, or those of `section` and the key of that very name.
KeySpecs specs_of(const std::string& section, const KeySpecs& specs) {
  KeySpecs chosen;
  for (const KeySpec& spec : specs) {
    if (section_of(spec.name) == section || spec.name == section) chosen.push_back(spec);
  }
  return chosen;
}

std::string title_of(const std::string& section, const KeySpecs& specs) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&section](const KeySpec& spec) {
    return section_of(spec.name) == section && !spec.section_title.empty();
  });
  return found == specs.end() ? "" : found->section_title;
}

Rows options(const std::vector<CommandSpec>& commands) {
  Rows rows = {{"--config FILE", "Read keys from an INI file. May be repeated; later files override earlier ones"},
               {"--section.key=value", "Set a key. Overrides the files"}};
  for (const CommandSpec& command : commands) {
    for (const CommandOption& option : command.options) {
      rows.emplace_back("--" + option.name + (option.value.empty() ? "" : " " + option.value),
                        command.name + ": " + option.help);
    }
  }
  rows.emplace_back("--help[=SECTION]", "Print this page, or the keys of a section");
  rows.emplace_back("--version", "Print the versions of Lockstep and of its libraries");
  return rows;
}

const Rows& exit_codes() {
  static const Rows rows = {
      {"0", "Success"},
      {"2", "Configuration error: invalid command line, key or combination of keys"},
      {"3", "Data error: data are missing, unreadable or invalid"},
      {"4", "Checkpoint error: a checkpoint cannot be written, read or used"},
      {"5", "Communication error: a rank was lost, or ranks disagree"},
      {"6", "Numerical error: a loss, a gradient or a parameter is not finite"},
      {"70", "Internal error"},
      {"75", "Stopped on request, or before a time limit, after saving a checkpoint. Restart with --resume=auto"},
      {"130", "Interrupted twice: exited at once without saving"},
  };
  return rows;
}

const Rows& environment_variables() {
  static const Rows rows = {
      {"LOCKSTEP_CPU",
       "Lowers the processor level of Lockstep and its libraries: generic, avx2, avx512 or amx. `trainer --version` "
       "prints the level in use"},
      {"OMP_NUM_THREADS", "Number of threads of each rank if run.threads is 0"},
  };
  return rows;
}

const char* const kExamples = R"(
Examples
  mpirun -np 2 trainer
  mpirun -np 8 trainer --config gpt-char.ini --data.path=input.txt --optim.lr=3e-4 --run.dir=runs/a
  mpirun -np 8 trainer --config gpt-char.ini --run.dir=runs/a --resume=auto
  trainer eval --from runs/a
  mpirun -np 2 trainer predict --from runs/a --predict.out=predictions.jsonl
  trainer config --config gpt-char.ini --groups
  trainer schedule --config gpt-char.ini --plot schedule.svg
  trainer lr-find --config gpt-char.ini --curve lr.svg
  trainer data --config photos.ini --data.path=DIR --sheet sheet.html
)";

}  // namespace

std::string overview_help(const KeySpecs& specs, const std::vector<CommandSpec>& commands) {
  const KeySpecs known = Config(specs).specs();
  Rows command_rows;
  for (const CommandSpec& command : commands) command_rows.emplace_back(command.name, command.help);
  Rows section_rows;
  for (const std::string& name : section_names(known)) section_rows.emplace_back(name, title_of(name, known));
  std::string text = "Usage: trainer [COMMAND] [--config FILE]... [--section.key=value]...\n";
  text += paragraph("Commands", command_rows);
  text += paragraph("Options", options(commands));
  text += paragraph("Sections (--help=SECTION lists the keys)", section_rows);
  const KeySpecs top = specs_of("", known);
  if (!top.empty()) text += paragraph("Keys without a section", key_rows(top));
  text += paragraph("Environment variables", environment_variables());
  text += paragraph("Exit codes (the same on every rank)", exit_codes());
  return text + kExamples;
}

std::string section_help(const std::string& section, const KeySpecs& specs) {
  const KeySpecs known = Config(specs).specs();
  const KeySpecs chosen = specs_of(section, known);
  if (section.empty() || chosen.empty()) {
    const std::vector<std::string> names = section_names(known);
    const std::string near = nearest_name(section, names);
    throw ConfigError("--help=" + section + ": the section is unknown; choose one of: " + joined(names) +
                      (near.empty() ? "" : " (did you mean '" + near + "'?)"));
  }
  const std::string title = title_of(section, known);
  std::string text = paragraph("[" + section + "]" + (title.empty() ? "" : " " + title), key_rows(chosen)).substr(1);
  for (const KeySpec& key : chosen) text += describe_parts(key);
  return text;
}

}  // namespace lockstep::config
