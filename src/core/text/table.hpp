// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/text.hpp"

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

/// `common` and the keys of every row, each name once: the first declaration counts.
template <class Row>
KeySpecs keys_of_rows(KeySpecs common, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    for (const KeySpec& key : row.keys) {
      const bool is_known =
          std::any_of(common.begin(), common.end(), [&key](const KeySpec& other) { return other.name == key.name; });
      if (!is_known) common.push_back(key);
    }
  }
  return common;
}

}  // namespace lockstep
