// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/measurements.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/tensor_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

// Letters of this module: N samples (each prediction of a text or an image is one), C classes, K outputs and L targets
// of a sample.
namespace lockstep::metrics {

/// A target with this value is not counted (data::kIgnored).
inline constexpr std::int64_t kIgnored = -100;

/// A number or a text that belongs to a sample, such as a file name or a size.
using SampleValue = std::variant<double, std::string>;

/// The outputs and targets of samples. Numbers are doubles, which represent every float32 and every class number
/// exactly.
struct Samples {
  std::vector<std::int64_t> indices;  ///< [N] which samples of the data set they are
  std::vector<double> outputs;        ///< [N, K]
  std::vector<double> targets;        ///< [N, L]
  std::size_t output_columns = 0;     ///< K
  std::size_t target_columns = 0;     ///< L
  /// [N] for each name in Reads::values.
  std::map<std::string, std::vector<SampleValue>> values = {};

  std::size_t size() const noexcept { return indices.size(); }
  std::span<const double> output(std::size_t i) const {
    return std::span(outputs).subspan(i * output_columns, output_columns);
  }
  std::span<const double> target(std::size_t i) const {
    return std::span(targets).subspan(i * target_columns, target_columns);
  }
  /// Whether each of several classes has a target of its own, 0 or 1, instead of one class being asked.
  bool has_target_of_each_class() const noexcept { return output_columns > 1 && target_columns == output_columns; }
};

/// The predictions of one batch.
/// @param output  with a dimension more than `target`, either the last or, in images, the second, over which K runs:
///                [N, C] for [N], [N, T, C] for [N, T], [N, C, H, W] for [N, H, W]; then L is 1. With as many
///                dimensions: [N, ...] for [N, ...], of which all but the first are K and L
/// @param first   number of the batch's first sample; a sample with P predictions has the indices P * number onwards
/// @throws DataError  shapes that do not fit each other
Samples samples_of(const Tensor& output, const Tensor& target, std::int64_t first);

/// Numbers in [0, classes) of a target or of an output that is a class; kIgnored stays as it is.
/// @param ignored  another number that becomes kIgnored
/// @throws DataError  another number, or one that is not whole
std::int64_t class_of(double value, std::int64_t classes, std::int64_t ignored = kIgnored);

/// 0, 1, or -1 for "not counted".
/// @throws DataError  another number
int label_of(double value);

/// The class with the highest score, of equal ones the first. NaN is lower than any number.
std::size_t best_class(std::span<const double> scores);

/// How many classes go before class `of`: those with a higher score, and of equal ones the earlier. NaN is lower than
/// any number.
std::size_t place_of(std::span<const double> scores, std::size_t of);

/// The probabilities that unnormalized scores stand for.
void softmax(std::span<double> scores);
/// Their natural logarithms.
void log_softmax(std::span<double> scores);

/// Adds `more` to the end of `samples`, which may be empty.
/// @throws DataError  with other numbers of outputs or targets
void append(Samples& samples, const Samples& more);

/// Bytes of `samples` for all_gather_any: none of no sample.
std::vector<std::byte> pack(const Samples& samples);
/// What several ranks packed, by index. A sample that several ranks brought is taken once, from the first of them.
/// @throws DataError  ranks with different numbers of outputs or targets
Samples unpack(std::span<const std::vector<std::byte>> parts);

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

/// The output of the model and the values of the batch that a meter reads, by name.
struct Reads {
  std::string output = "";  ///< if empty, the main output
  std::string target = "";  ///< if empty, the first target
  /// Further values of the batch: one number or text for each sample. They arrive in Samples::values.
  std::vector<std::string> values = {};

  bool operator==(const Reads&) const = default;
};

/// One measurement over samples: a few functions, no state. There are two kinds. Most count each sample into integers
/// that add up, over batches and over ranks; the others need all samples at once, in the order of their indices. Either
/// way the reading does not depend on who saw which sample.
struct Meter {
  std::vector<Result> results;
  std::size_t words = 0;  ///< integers that it counts in; 0 = it needs all samples
  /// Counts samples. @throws DataError  they are not what the meter needs
  std::function<void(const Samples&, std::span<std::int64_t> words)> add = {};
  std::function<Reading(std::span<const std::int64_t> words)> read = {};
  /// Of a meter that needs all samples. @throws DataError  they are not what it needs
  std::function<Reading(const Samples&)> read_all = {};
  /// A row of the table sets only `values`; the options `output` and `target` set the others.
  Reads reads = {};
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

/// The options that every meter has.
const KeySpecs& common_meter_keys();

/// A meter as a configuration names it: "confusion", "top_k,k=3". Beside its own options every meter has `output` and
/// `target`, see Reads, `classes`, which replaces the task's, and `prefix`, with which its numbers and tables are then
/// called "prefix/number".
/// @param place  how a message begins
/// @throws ConfigError  an unknown row or option, with the nearest known ones, or what the row refuses
Meter make_meter(const std::string& text, std::int64_t classes, const std::string& place,
                 const std::vector<MeterRow>& rows = builtin_meters());

}  // namespace lockstep::metrics
