// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>
#include <lockstep/core/measurements.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/metrics/samples.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::metrics {

/// A number that a meter gives.
struct Result {
  std::string name;
  bool is_higher_better = true;
};

/// What a meter gives: a number for each of its results, in their order, and tables.
struct Reading {
  std::vector<double> numbers;
  std::vector<Table> tables = {};
};

/// One measurement over samples: a few functions, no state. There are two kinds. Most count each sample into whole
/// numbers that add up, over batches and over ranks; the others need all samples at once, in the order of their
/// indices. Either way the reading does not depend on who saw which sample.
struct Meter {
  std::vector<Result> results;
  std::size_t words = 0;  ///< whole numbers that it counts in; 0: it needs all samples
  /// Counts samples. @throws DataError  they are not what the meter needs
  std::function<void(const Samples&, std::span<std::int64_t> words)> add = {};
  std::function<Reading(std::span<const std::int64_t> words)> read = {};
  /// Of a meter that needs all samples. @throws DataError  they are not what it needs
  std::function<Reading(const Samples&)> read_all = {};
};

/// A row of the table of meters. A user's program adds rows to a copy of builtin_meters().
struct MeterRow {
  std::string name;
  std::string help;   ///< what it measures
  std::string needs;  ///< of output and target of a batch
  KeySpecs keys;      ///< of its options
  /// @param classes  that the data set's Task names: C, or the number of outputs
  /// @throws ConfigError  options that do not fit each other or the classes
  std::function<Meter(const Section& options, std::int64_t classes)> make;
};

/// top_k, confusion, overlap, perplexity, calibration, multilabel, probability, regression, regression_order, auroc,
/// average_precision, reidentification.
const std::vector<MeterRow>& builtin_meters();

/// A meter as a configuration names it: "confusion", "top_k,k=3".
/// @param place  how a message begins
/// @throws ConfigError  an unknown row or option, with the nearest known ones, or what the row refuses
Meter make_meter(const std::string& text, std::int64_t classes, const std::string& place,
                 const std::vector<MeterRow>& rows = builtin_meters());

}  // namespace lockstep::metrics
