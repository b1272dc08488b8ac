// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/text.hpp"

// Tables of choices, and values that choose a row and hold options of their own, such as
// "cosine,begin=100,final_factor=0.1".
namespace lockstep {

/// The names of all rows, in their order.
template <class Row>
std::vector<std::string> names_of(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.name);
  return names;
}

/// The row called `name` of a table of choices: rows have a `name`.
/// @param cited_as  how the message begins, such as Section::cite gives it
/// @throws ConfigError  no such row, with the known names and the nearest
template <class Row>
const Row& find_row(const std::vector<Row>& rows, std::string_view name, const std::string& cited_as) {
  const auto found = std::find_if(rows.begin(), rows.end(), [name](const Row& row) { return row.name == name; });
  if (found != rows.end()) return *found;
  const std::vector<std::string> names = names_of(rows);
  const std::string near = nearest_name(std::string(name), names);
  throw ConfigError(cited_as + ": '" + std::string(name) + "' is unknown; choose one of: " + joined(names) +
                    (near.empty() ? "" : "; did you mean '" + near + "'?"));
}

/// Adds to the readers of a key a choice that declares it.
void add_reader(KeySpec& key, const std::string& choice, const std::string& default_value,
                const std::vector<std::string>& selectors);

/// `common` and the keys of every row, each name once: the first declaration counts, but the default of each row is
/// kept (KeyReaders). A common key that a row declares, too, is still read with every row. The rows become the `parts`
/// of the first selector.
/// @param selectors  keys of `common` that choose rows, as in KeyReaders
template <class Row>
KeySpecs keys_of_rows(KeySpecs common, const std::vector<Row>& rows, const std::vector<std::string>& selectors) {
  const std::size_t common_count = common.size();
  std::vector<KeySpec> choices;
  for (const Row& row : rows) {
    choices.push_back({.name = row.name, .type = KeyType::text, .default_value = "", .help = row.help});
    choices.back().parts = row.keys;
    for (const KeySpec& key : row.keys) {
      auto known = std::ranges::find(common, key.name, &KeySpec::name);
      if (known == common.end()) {
        common.push_back(key);
        known = common.end() - 1;
      }
      const bool is_common = known - common.begin() < static_cast<std::ptrdiff_t>(common_count);
      if (is_common && known->readers.selectors.empty()) {
        known->readers.are_all = true;
        known->readers.otherwise = known->default_value;
      }
      add_reader(*known, row.name, key.default_value, selectors);
    }
  }
  const auto selector = std::ranges::find(common, selectors.front(), &KeySpec::name);
  if (selector != common.end()) selector->parts = choices;
  return common;
}

/// The words of an entry, where a word without '=' continues the option before it: "a=1", "2" and "b=3" become "a=1,2"
/// and "b=3".
std::vector<std::string> with_lists(const std::vector<std::string>& words);
/// The name and the options of an entry "NAME,key=value,...", in which a value can be a list: "freeze,names=conv1,head"
/// has one option.
std::vector<std::string> entry_parts(const std::string& entry);

/// An entry of earlier versions in the form of today: former names of forms and options are replaced, options without a
/// new one are left out, and lists have commas instead of slashes. So are the entries in parentheses of a value:
/// "curves=(A | B)".
/// @param forms  as in KeySpec::parts; they and their options state former names and settings as keys do:
///               KeySpec::old_names and KeySpec::replaces, without a section
/// @param more   keys of options that no form has
std::string todays_entry(const std::string& entry, const KeySpecs& forms, const KeySpecs& more = {});

/// Takes over one "key=value" into a section without a name.
/// @param place  start of messages
/// @throws ConfigError  not of this form, an unknown key (with the nearest name), a value that its spec refuses, or a
///                      key that was given before
void set_option(Section& options, const std::string& option, const std::string& place);

/// A row of a table, and the values of its options.
template <class Row>
struct ChosenRow {
  const Row* row;
  Section options = {};
};

/// Reads "NAME,key=value,...".
/// @param common        keys that every row has, in addition to its own
/// @param name_place    start of the message about an unknown name
/// @param option_place  start of messages about options
/// @throws ConfigError  an unknown name or key (with the nearest one), or a value that its spec refuses
template <class Row>
ChosenRow<Row> choose_row(const std::vector<Row>& rows, const std::string& text, const KeySpecs& common,
                          const std::string& name_place, const std::string& option_place) {
  const std::vector<std::string> parts = entry_parts(text);
  ChosenRow<Row> chosen{.row = &find_row(rows, parts.front(), name_place)};
  for (const KeySpec& key : chosen.row->keys) chosen.options.declare(key);
  for (const KeySpec& key : common) chosen.options.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(chosen.options, parts[i], option_place);
  return chosen;
}

}  // namespace lockstep
