// SPDX-License-Identifier: BSD-3-Clause
#include "config/help.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cctype>
#include <iterator>
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

std::string default_text(const KeySpec& spec) {
  const bool is_unset = spec.default_value.empty() || spec.default_value == "nan";
  return is_unset ? "none" : spec.default_value;
}

bool depends_on_choice(const KeySpec& spec) { return spec.default_value == "auto" && !spec.readers.selectors.empty(); }

std::string describe(const KeySpec& spec) {
  std::string range = range_of(spec);
  for (const std::string article : {"an ", "a "}) {
    if (range.starts_with(article)) range.erase(0, article.size());
  }
  range[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(range[0])));
  const bool says_auto = spec.help.find("auto = ") != std::string::npos;
  return spec.help + (spec.help.empty() ? "" : ". ") + range + "; default " +
         (depends_on_choice(spec) && !says_auto ? "auto = that of " + spec.readers.selectors.front()
                                                : default_text(spec));
}

/// The first sentence of the help of a key, and its default.
std::string in_short(const KeySpec& spec) {
  std::string sentence =
      spec.help.substr(0, std::min({spec.help.find(". "), spec.help.find("; "), spec.help.find(": ")}));
  return sentence + " (default " +
         (depends_on_choice(spec) ? "depends on " + spec.readers.selectors.front() : default_text(spec)) + ")";
}

Rows key_rows(const KeySpecs& specs) {
  Rows rows;
  for (const KeySpec& spec : specs) rows.emplace_back("--" + spec.name, describe(spec));
  return rows;
}

const KeySpec* find_key(const KeySpecs& specs, const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const KeySpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

template <class Keep>
KeySpecs selected(const KeySpecs& specs, const Keep& keep) {
  KeySpecs kept;
  std::copy_if(specs.begin(), specs.end(), std::back_inserter(kept), keep);
  return kept;
}

/// The keys without a section, or those of `section` and the key of that very name.
KeySpecs specs_of(const std::string& section, const KeySpecs& specs) {
  return selected(specs, [&](const KeySpec& spec) { return section_of(spec.name) == section || spec.name == section; });
}

std::string title_of(const std::string& section, const KeySpecs& specs) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&section](const KeySpec& spec) {
    return section_of(spec.name) == section && !spec.section_title.empty();
  });
  return found == specs.end() ? "" : found->section_title;
}

/// Whether the help of a section leaves the key to the help of a choice of that section.
bool is_of_choice(const KeySpec& spec) {
  const KeyReaders& readers = spec.readers;
  return !readers.selectors.empty() && !readers.are_all &&
         section_of(readers.selectors.front()) == section_of(spec.name);
}

/// Whether keys of the section depend on what this key chooses.
bool is_selector(const KeySpec& spec, const KeySpecs& specs) {
  return std::any_of(specs.begin(), specs.end(), [&](const KeySpec& other) {
    return is_of_choice(other) && other.readers.selectors.front() == spec.name;
  });
}

/// The name by which help calls the forms of a text: "hooks" of train.hooks, "transforms" of data.transform.
std::string forms_name(const KeySpec& key) {
  const std::string name = key_of(key.name);
  if (name.ends_with('s')) return name;
  return name + (name.ends_with('x') ? "es" : "s");
}

/// The options that every form of a text has.
KeySpecs common_options(const KeySpec& key) {
  if (key.parts.size() < 2) return {};
  return selected(key.parts.front().parts, [&](const KeySpec& option) {
    return std::all_of(key.parts.begin(), key.parts.end(),
                       [&](const KeySpec& part) { return find_key(part.parts, option.name) != nullptr; });
  });
}

Rows option_rows(const KeySpecs& options) {
  Rows rows;
  for (const KeySpec& option : options) rows.emplace_back(option.name, describe(option));
  return rows;
}

/// A form of a text and its options, without those that all forms have.
std::string describe_form(const KeySpec& key, const KeySpec& form) {
  const KeySpecs common = common_options(key);
  return paragraph(key.name + ", " + form.name + ": " + form.help,
                   option_rows(selected(
                       form.parts, [&](const KeySpec& option) { return find_key(common, option.name) == nullptr; })));
}

std::string describe_common(const KeySpec& key) {
  const KeySpecs common = common_options(key);
  return common.empty() ? "" : paragraph("Options of all " + forms_name(key), option_rows(common));
}

std::string describe_forms(const KeySpec& key) {
  std::string text = describe_common(key);
  for (const KeySpec& form : key.parts) text += describe_form(key, form);
  return text;
}

/// The keys that one choice of a selector reads, with its defaults.
KeySpecs read_keys(const KeySpec& selector, const std::string& choice, const KeySpecs& specs) {
  KeySpecs read;
  for (KeySpec key : specs) {
    const bool is_concerned = !key.readers.selectors.empty() && key.readers.selectors.front() == selector.name;
    const auto own = key.readers.defaults.find(choice);
    if (!is_concerned || own == key.readers.defaults.end()) continue;
    key.default_value = own->second;
    key.readers = {};
    read.push_back(key);
  }
  return read;
}

std::string describe_choice(const KeySpec& selector, const std::string& choice, const KeySpecs& specs) {
  const KeySpecs read = read_keys(selector, choice, specs);
  const KeySpec* const row = find_key(selector.parts, choice);
  const std::string help = row == nullptr ? "" : ": " + row->help;
  return paragraph(selector.name + "=" + choice + help, key_rows(read)).substr(1) + "\n" +
         wrapped(std::string(read.empty() ? "It has no keys of its own" : "These are its own keys") + "; --help=" +
                     section_of(selector.name) + " describes the keys that do not depend on " + selector.name,
                 0);
}

/// The choices of a selector, in the order of its rows, if it has any.
std::vector<std::string> choices_of(const KeySpec& selector, const KeySpecs& specs) {
  std::vector<std::string> choices;
  for (const KeySpec& row : selector.parts) choices.push_back(row.name);
  for (const KeySpec& key : specs) {
    if (key.readers.selectors.empty() || key.readers.selectors.front() != selector.name) continue;
    for (const auto& [choice, text] : key.readers.defaults) {
      if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
    }
  }
  return choices;
}

/// The keys of every choice; choices with the same keys and defaults stand together.
std::string describe_choices(const KeySpec& selector, const KeySpecs& specs) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // keys, choices
  for (const std::string& choice : choices_of(selector, specs)) {
    const KeySpecs read = read_keys(selector, choice, specs);
    if (read.empty()) continue;
    const std::string keys = paragraph("", key_rows(read)).substr(2);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == keys; });
    if (same == groups.end()) {
      groups.push_back({keys, {choice}});
    } else {
      same->second.push_back(choice);
    }
  }
  std::string text;
  for (const auto& [keys, choices] : groups) text += "\n" + wrapped(selector.name + "=" + joined(choices), 0) + keys;
  return text;
}

Rows names_and_help(const KeySpecs& parts) {
  Rows rows;
  for (const KeySpec& part : parts) rows.emplace_back(part.name, part.help);
  return rows;
}

/// The choices of the selectors, or the forms of texts, in short.
std::string list_choices(const KeySpec& key, const std::string& section, const KeySpecs& specs) {
  const bool chooses = is_selector(key, specs);
  if (!chooses && key.parts.empty()) return "";
  const bool have_names = std::none_of(key.parts.begin(), key.parts.end(),
                                       [](const KeySpec& part) { return part.name.find(' ') != std::string::npos; });
  if (!chooses && (key.parts.size() < 2 || !have_names)) return describe_forms(key);
  if (!chooses) {
    return paragraph("Forms of " + key.name + " (--help=" + forms_name(key) + ".NAME describes the options of one)",
                     names_and_help(key.parts));
  }
  Rows rows = names_and_help(key.parts);
  if (rows.empty()) {
    for (const std::string& choice : choices_of(key, specs)) rows.emplace_back(choice, "");
  }
  return paragraph("Choices of " + key.name + " (--help=" + section + ".NAME describes the keys of one)", rows);
}

std::string describe_keys(const std::string& section, const KeySpecs& known) {
  const std::string title = title_of(section, known);
  const KeySpecs shown =
      selected(specs_of(section, known), [](const KeySpec& spec) { return !is_of_choice(spec) && !spec.is_expert; });
  return paragraph("[" + section + "]" + (title.empty() ? "" : " " + title), key_rows(shown)).substr(1);
}

KeySpecs expert_keys(const std::string& section, const KeySpecs& known) {
  return selected(specs_of(section, known), [](const KeySpec& spec) { return spec.is_expert && !is_of_choice(spec); });
}

std::string describe_section(const std::string& section, const KeySpecs& known) {
  std::string text = describe_keys(section, known);
  for (const KeySpec& key : specs_of(section, known)) text += list_choices(key, section, known);
  std::vector<std::string> experts;
  for (const KeySpec& key : expert_keys(section, known)) experts.push_back(key_of(key.name));
  if (experts.empty()) return text;
  return text + "\n" + wrapped("Expert keys (--help=" + section + ".expert describes them): " + joined(experts), 0);
}

/// The section with the keys of its choices, the options of its entries and the keys for experts.
std::string describe_whole_section(const std::string& section, const KeySpecs& known) {
  std::string text = describe_keys(section, known);
  for (const KeySpec& key : specs_of(section, known)) {
    const bool has_rows = !key.parts.empty();
    if (has_rows) text += is_selector(key, known) ? list_choices(key, section, known) : describe_forms(key);
    text += describe_choices(key, known);
  }
  const KeySpecs experts = expert_keys(section, known);
  return experts.empty() ? text : text + paragraph("Expert keys", key_rows(experts));
}

/// The help for "SECTION.WORD": a choice, a form, a key, or the keys for experts; empty = there is none.
std::string describe_word(const std::string& section, const std::string& word, const KeySpecs& known) {
  const KeySpecs chosen = specs_of(section, known);
  if (word == "all") return chosen.empty() ? "" : describe_whole_section(section, known);
  if (word == "expert") {
    const KeySpecs experts = expert_keys(section, known);
    return experts.empty() ? "" : paragraph("[" + section + "] Expert keys", key_rows(experts)).substr(1);
  }
  for (const KeySpec& key : chosen) {
    const bool is_choice = is_selector(key, known) && contains(choices_of(key, known), word);
    if (is_choice) return describe_choice(key, word, known);
  }
  if (const KeySpec* const key = find_key(chosen, section + "." + word)) {
    return paragraph("[" + section + "]", key_rows({*key})).substr(1) +
           (is_selector(*key, known) ? list_choices(*key, section, known) : describe_forms(*key));
  }
  for (const KeySpec& key : known) {
    const bool is_of_forms = section == forms_name(key) || section == section_of(key.name);
    if (!is_of_forms || key.parts.empty() || is_selector(key, known)) continue;
    const KeySpec* const form = find_key(key.parts, word);
    if (form != nullptr) return describe_form(key, *form).substr(1) + describe_common(key);
  }
  return "";
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
  rows.emplace_back("--help[=NAME]", "Print the overview, or the keys of a section or a choice");
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
      {"7", "Out of memory of the host or of a GPU"},
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

/// The keys that most runs set, in the order in which a user thinks of them.
const std::vector<std::string>& basic_keys() {
  static const std::vector<std::string> names = {"data.name",
                                                 "data.path",
                                                 "data.augmentation",
                                                 "data.workers",
                                                 "model.name",
                                                 "model.from",
                                                 "init.from",
                                                 "loss.name",
                                                 "optim.name",
                                                 "optim.lr",
                                                 "optim.weight_decay",
                                                 "sched.name",
                                                 "sched.warmup",
                                                 "train.global_batch_size",
                                                 "train.max_epochs",
                                                 "train.max_steps",
                                                 "train.time_limit",
                                                 "train.precision",
                                                 "train.clip_norm",
                                                 "eval.every",
                                                 "ckpt.every",
                                                 "log.every",
                                                 "run.dir",
                                                 "run.seed",
                                                 "resume"};
  return names;
}

const Rows& more_help() {
  static const Rows rows = {
      {"--help=SECTION", "Keys of a section, and its choices"},
      {"--help=SECTION.CHOICE", "Keys that a choice reads, as in --help=optim.adamw or --help=model.resnet50"},
      {"--help=hooks, transforms, metrics",
       "Options of all hooks, transforms or metrics; --help=hooks.memory describes one hook"},
      {"--help=SECTION.KEY", "One key, as in --help=optim.lr"},
      {"--help=SECTION.expert", "Keys of a section that few runs need"},
      {"--help=SECTION.all, --help=all", "Everything about a section, or about all sections"},
      {"--help=commands", "Options of the commands"},
  };
  return rows;
}

}  // namespace

std::string overview_help(const KeySpecs& specs, const std::vector<CommandSpec>& commands) {
  const KeySpecs known = Config(specs).specs();
  Rows command_rows;
  for (const CommandSpec& command : commands) command_rows.emplace_back(command.name, command.help);
  Rows basic_rows;
  for (const std::string& name : basic_keys()) {
    if (const KeySpec* const key = find_key(known, name)) basic_rows.emplace_back("--" + name, in_short(*key));
  }
  Rows section_rows;
  for (const std::string& name : section_names(known)) section_rows.emplace_back(name, title_of(name, known));
  std::string text = "Usage: trainer [COMMAND] [--config FILE]... [--section.key=value]...\n";
  text += paragraph("Commands", command_rows);
  if (!basic_rows.empty()) text += paragraph("Keys that most runs need", basic_rows);
  text += paragraph("More help", more_help());
  text += paragraph("Sections", section_rows);
  text += paragraph("Environment variables", environment_variables());
  text += paragraph("Exit codes (the same on every rank)", exit_codes());
  return text + kExamples;
}

std::string command_help(const std::vector<CommandSpec>& commands) {
  return paragraph("Options", options(commands)).substr(1);
}

std::string section_help(const std::string& name, const KeySpecs& specs) {
  const KeySpecs known = Config(specs).specs();
  const std::vector<std::string> names = section_names(known);
  if (name == "all") {
    std::string text;
    for (const std::string& section : names) {
      text += (text.empty() ? "" : "\n") + describe_whole_section(section, known);
    }
    return text;
  }
  if (contains(names, name)) return describe_section(name, known);
  for (const KeySpec& key : known) {
    if (!key.parts.empty() && forms_name(key) == name) return describe_forms(key).substr(1);
  }
  const std::string text = describe_word(section_of(name), key_of(name), known);
  if (!text.empty()) return text;
  if (contains(names, section_of(name))) {
    throw ConfigError("--help=" + name + ": the choice or key is unknown; --help=" + section_of(name) +
                      " lists those of section " + section_of(name));
  }
  const std::string near = nearest_name(name, names);
  throw ConfigError("--help=" + name + ": the section is unknown; choose one of: " + joined(names) +
                    (near.empty() ? "" : " (did you mean '" + near + "'?)"));
}

}  // namespace lockstep::config
