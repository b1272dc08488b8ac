// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <string>
#include <vector>

#include "core/text/table.hpp"
#include "core/text/text.hpp"
// Values that hold options of their own, such as "cosine,begin=100,final_factor=0.1".
namespace lockstep {

/// Takes over one "key=value" into a section without a name. Inside such a value a list is separated by slashes, as
/// commas separate the options.
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
  const std::vector<std::string> parts = split_list(text, ',');
  ChosenRow<Row> chosen{.row = &find_row(rows, parts.front(), name_place)};
  for (const KeySpec& key : chosen.row->keys) chosen.options.declare(key);
  for (const KeySpec& key : common) chosen.options.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(chosen.options, parts[i], option_place);
  return chosen;
}
}  // namespace lockstep
