// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/metrics/meter.hpp>

#include <utility>

#include "core/option_list.hpp"
#include "core/table.hpp"

namespace lockstep::metrics {

namespace {

Reading prefixed(Reading reading, const std::string& prefix) {
  for (Table& table : reading.tables) table.name = prefix + table.name;
  return reading;
}

/// The meter with other names for what it gives.
Meter prefixed(Meter meter, const std::string& prefix) {
  for (Result& result : meter.results) result.name = prefix + result.name;
  if (meter.read) {
    meter.read = [read = std::move(meter.read), prefix](std::span<const std::int64_t> words) {
      return prefixed(read(words), prefix);
    };
  }
  if (meter.read_all) {
    meter.read_all = [read = std::move(meter.read_all), prefix](const Samples& samples) {
      return prefixed(read(samples), prefix);
    };
  }
  return meter;
}

}  // namespace

const KeySpecs& common_meter_keys() {
  static const KeySpecs keys = {
      keys::text("output", "", "Name of the model output to read. If empty, the main output is used"),
      keys::text("target", "", "Name of the batch value to read as target. If empty, the first target is used"),
      keys::integer("classes", "0",
                    "Number of classes, or of values, of the output. 0 = the number that the task defines", 0, 1e9),
      keys::text("prefix", "", "Prefix of the metric names, to distinguish several meters of the same kind")};
  return keys;
}

Meter make_meter(const std::string& text, std::int64_t classes, const std::string& place,
                 const std::vector<MeterRow>& rows) {
  const std::vector<std::string> parts = split_list(text, ',');
  const MeterRow& row = find_row(rows, parts.empty() ? "" : parts.front(), place);
  Section options;
  for (const KeySpec& key : row.keys) options.declare(key);
  for (const KeySpec& key : common_meter_keys()) options.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(options, parts[i], place);
  try {
    const std::int64_t own = options.integer("classes");
    Meter meter = row.make(options, own > 0 ? own : classes);
    const bool is_complete = meter.words > 0 ? meter.add && meter.read : bool(meter.read_all);
    if (!is_complete) throw ConfigError("the meter has no functions; set add and read, or read_all");
    for (const Result& result : meter.results) {
      if (result.name.empty()) throw ConfigError("a result of the meter has no name");
    }
    meter.reads.output = options.text("output");
    meter.reads.target = options.text("target");
    const std::string& prefix = options.text("prefix");
    return prefix.empty() ? meter : prefixed(std::move(meter), prefix + "/");
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + row.name + ": " + error.what());
  }
}

}  // namespace lockstep::metrics
