// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/metrics/meter.hpp>

#include "core/option_list.hpp"
#include "core/table.hpp"

namespace lockstep::metrics {

Meter make_meter(const std::string& text, std::int64_t classes, const std::string& place,
                 const std::vector<MeterRow>& rows) {
  const std::vector<std::string> parts = split_list(text, ',');
  const MeterRow& row = find_row(rows, parts.empty() ? "" : parts.front(), place);
  Section options;
  for (const KeySpec& key : row.keys) options.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(options, parts[i], place);
  try {
    return row.make(options, classes);
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + row.name + ": " + error.what());
  }
}

}  // namespace lockstep::metrics
