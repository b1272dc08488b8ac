// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/metrics/meter.hpp>

#include <utility>

#include "core/text/table.hpp"

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

std::vector<ExactSum> sums_in(std::span<const std::int64_t> words) {
  std::vector<ExactSum> sums;
  for (; !words.empty(); words = words.subspan(ExactSum::kWords)) sums.emplace_back(words.first(ExactSum::kWords));
  return sums;
}

}  // namespace

Meter meter_of_sums(std::vector<Result> results, std::size_t sums,
                    std::function<void(const Samples& samples, std::span<ExactSum> sums)> add,
                    std::function<Reading(std::span<const ExactSum> sums)> read) {
  return {.results = std::move(results),
          .words = sums * ExactSum::kWords,
          .add =
              [add = std::move(add)](const Samples& samples, std::span<std::int64_t> words) {
                std::vector<ExactSum> held = sums_in(words);
                add(samples, held);
                for (std::size_t i = 0; i < held.size(); ++i) {
                  held[i].store(words.subspan(i * ExactSum::kWords, ExactSum::kWords));
                }
              },
          .read = [read = std::move(read)](std::span<const std::int64_t> words) { return read(sums_in(words)); }};
}

const KeySpecs& common_meter_keys() {
  static const KeySpecs keys = {
      keys::text("output", "", "Name of the model output to read. If empty, that of the metric, or the main output"),
      keys::text("target", "", "Name of the batch value to read as target. If empty, that of the metric, or the first"),
      keys::integer("classes", "0",
                    "Number of classes, or of values, of the output. 0 = the number that the task defines", 0, 1e9),
      keys::text("prefix", "", "Prefix of the metric names, to distinguish several meters of the same kind")};
  return keys;
}

Meter make_meter(const std::string& text, std::int64_t classes, const std::string& place,
                 const std::vector<MeterRow>& rows) {
  return make_meter(text, Task{.classes = classes}, place, rows);
}

Meter make_meter(const std::string& text, const Task& task, const std::string& place,
                 const std::vector<MeterRow>& rows) {
  const auto [row, options] = choose_row(rows, text, common_meter_keys(), place, place);
  try {
    Task used = task;
    if (const std::int64_t own = options.integer("classes"); own > 0) used.classes = own;
    Meter meter = row->make_for_task ? row->make_for_task(options, used) : row->make(options, used.classes);
    const bool is_complete = meter.words > 0 ? meter.add && meter.read : bool(meter.read_all);
    if (!is_complete) throw ConfigError("the meter has no functions; set add and read, or read_all");
    const bool reads_fields = !meter.reads.fields.empty() || !meter.reads.optional_fields.empty();
    if (meter.words == 0 && reads_fields) {
      throw ConfigError("a meter that needs all samples cannot read fields; set add and read instead of read_all");
    }
    if (meter.maxima > meter.words) throw ConfigError("the meter has more maxima than words; correct one of them");
    for (const Result& result : meter.results) {
      if (result.name.empty()) throw ConfigError("a result of the meter has no name");
    }
    if (!options.text("output").empty()) meter.reads.output = options.text("output");
    if (!options.text("target").empty()) meter.reads.target = options.text("target");
    const std::string& prefix = options.text("prefix");
    return prefix.empty() ? meter : prefixed(std::move(meter), prefix + "/");
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + row->name + ": " + error.what());
  }
}

}  // namespace lockstep::metrics
