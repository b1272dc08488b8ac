// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/measurements.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/core/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

// Symbols in this module: N samples (each prediction of a text or an image counts as one), C classes, K outputs and L
// targets per sample.
namespace lockstep::metrics {

/// A sum of doubles in which nothing is rounded, so that neither order nor grouping changes it.
///
/// It consists of integers: digits of 32 bits from 2^-1074 upwards, and the numbers of infinities and NaN. Words of
/// several sums, added one by one as int64, are the words of the sum of all, so that ranks can add them exactly. See
/// meter_of_sums. Source: Kulisch, Computer Arithmetic and Validity, section 8: the long accumulator.
/// Not collective.
class ExactSum {
 public:
  static constexpr std::size_t kWords = 71;

  ExactSum() = default;
  /// Continues stored words, or the sum of the words of up to 2^30 sums.
  /// @throws std::invalid_argument  not kWords words
  explicit ExactSum(std::span<const std::int64_t> words);

  void add(double value);
  /// Adds a * b. Exact unless the product is below 2^-969 or above the largest double.
  void add_product(double a, double b);

  /// The sum, rounded once to the nearest double, ties to even; 0 if nothing was added. NaN if a NaN or infinities of
  /// both signs were added, otherwise infinite if one was.
  double value() const;
  /// The sum to about 106 bits: value(), and what is left of it.
  struct Pair {
    double high = 0;
    double low = 0;
  };
  Pair pair() const;

  /// Writes kWords words.
  void store(std::span<std::int64_t> words) const;

 private:
  static constexpr std::size_t kDigits = 68;  // 2098 bits of the largest double, and room for 2^63 of them
  static constexpr std::size_t kNan = kDigits;
  static constexpr std::size_t kInfinity = kDigits + 1;
  static constexpr std::size_t kMinusInfinity = kDigits + 2;

  void settle();

  std::array<std::int64_t, kWords> words_ = {};
  std::int64_t unsettled_ = 0;  // additions since carries were last taken on
};

/// Targets with this value are ignored (data::kIgnored).
inline constexpr std::int64_t kIgnored = -100;

/// A number or a text of a sample, such as a file name or a size.
using SampleValue = std::variant<double, std::string>;

/// The outputs and targets of samples, as doubles, which represent every float32 and every class number exactly.
struct Samples {
  std::vector<std::int64_t> indices;  ///< [N] indices of the samples in the data set
  std::vector<double> outputs;        ///< [N, K]
  std::vector<double> targets;        ///< [N, L]
  std::size_t output_columns = 0;     ///< K
  std::size_t target_columns = 0;     ///< L
  /// [N] further values, for each name in Reads::values.
  std::map<std::string, std::vector<SampleValue>> values = {};
  /// Shape of the targets of a sample, with the product L: [C, space...] for fields. Empty = {L}. This and `fields` are
  /// unknown to meters that need all samples.
  std::vector<std::int64_t> shape = {};
  /// [N, L] further numbers, for each name in Reads::fields, and in Reads::optional_fields if the batch has the value.
  std::map<std::string, std::vector<double>> fields = {};

  std::size_t size() const noexcept { return indices.size(); }
  std::span<const double> output(std::size_t i) const {
    return std::span(outputs).subspan(i * output_columns, output_columns);
  }
  std::span<const double> target(std::size_t i) const {
    return std::span(targets).subspan(i * target_columns, target_columns);
  }
  /// Whether there is one target (0 or 1) per class, instead of one target that is the class.
  bool has_target_of_each_class() const noexcept { return output_columns > 1 && target_columns == output_columns; }
};

/// The outputs and targets of one batch.
/// @param output  with a dimension more than `target`, either the last or, in images, the second, over which K runs:
///                [N, C] for [N], [N, T, C] for [N, T], [N, C, H, W] for [N, H, W]; then L is 1. With as many
///                dimensions: [N, ...] for [N, ...], of which all but the first are K and L
/// @param first   index of the first sample of the batch; a sample with P predictions has the indices P * index, ...
/// @throws DataError  the shapes do not match
Samples samples_of(const Tensor& output, const Tensor& target, std::int64_t first);

/// The class in [0, classes) that a target or an output states, or kIgnored.
/// @param ignored  additional value that is converted to kIgnored
/// @throws DataError  any other number
std::int64_t class_of(double value, std::int64_t classes, std::int64_t ignored = kIgnored);

/// The label: 0, 1, or -1 = ignored.
/// @throws DataError  any other number
int label_of(double value);

/// The class with the highest score; the first of equal ones. NaN is lower than any number.
std::size_t best_class(std::span<const double> scores);

/// The rank of class `wanted`: the number of classes with a higher score, or an equal score and a lower number. NaN is
/// lower than any number.
std::size_t place_of(std::span<const double> scores, std::size_t wanted);

/// Converts unnormalized scores to probabilities.
void softmax(std::span<double> scores);
/// Converts unnormalized scores to the natural logarithms of probabilities.
void log_softmax(std::span<double> scores);

/// Appends `more` to `samples`, which can be empty.
/// @throws DataError  the numbers of outputs or targets differ
void append(Samples& samples, const Samples& more);

/// The bytes of `samples` for all_gather_any; empty if there are no samples.
std::vector<std::byte> pack(const Samples& samples);
/// The samples of several ranks, sorted by index. A sample of several ranks is taken from the first of them.
/// @throws DataError  the ranks have different numbers of outputs or targets
Samples unpack(std::span<const std::vector<std::byte>> parts);

/// The name and direction of a number that a meter computes.
struct Result {
  std::string name;  ///< an evaluation adds a prefix: "val/name"
  bool is_higher_better = true;
  std::string unit = {};  ///< such as "K"; "" = it has none, or it is unknown
};

/// The values of a meter: one number per result, in order, and tables.
struct Reading {
  std::vector<double> numbers;
  std::vector<Table> tables = {};
};

/// The names of the model output and of the values of the batch that a meter reads.
struct Reads {
  std::string output = "";  ///< [N, ...], see samples_of; [N] has one column; if empty, the main output
  std::string target = "";  ///< [N, ...] any value of the batch; if empty, the first target
  /// Further values of the batch, with one number or text per sample; see Samples::values.
  std::vector<std::string> values = {};
  /// Further values of the batch, with one number per target; sizes other than N can be 1. See Samples::fields.
  std::vector<std::string> fields = {};
  std::vector<std::string> optional_fields = {};  ///< the same, of values that a batch can lack

  bool operator==(const Reads&) const = default;
};

/// A measurement over samples, defined by a few functions without state. Most meters accumulate each sample in integers
/// that are summed over batches and ranks; meter_of_sums accumulates real numbers in this way. Others need all samples
/// at once, in the order of their indices. In all cases, the result does not depend on the distribution of samples to
/// ranks.
///
/// The functions are not collective; the engine sums and gathers. An error in one of them ends the run on all ranks.
struct Meter {
  std::vector<Result> results;
  std::size_t words = 0;  ///< number of integers to accumulate in; 0 = needs all samples
  /// Number of the last words that are not sums, but the largest number of all samples; at most `words`.
  std::size_t maxima = 0;
  /// Adds samples to the words, which begin with 0. Throws DataError if the samples do not match the meter.
  std::function<void(const Samples&, std::span<std::int64_t> words)> add = {};
  std::function<Reading(std::span<const std::int64_t> words)> read = {};
  /// The result of a meter that needs all samples. Throws DataError if they do not match the meter.
  std::function<Reading(const Samples&)> read_all = {};
  /// The values to read. The options `output` and `target` of a configuration replace those that the row sets.
  Reads reads = {};
};

/// A meter that accumulates sums of real numbers. Nothing is rounded before `read`, so that the results have the same
/// bits for every order of the samples and every division into batches and ranks. A sum takes 568 bytes on each rank.
/// @param sums  number of sums, which begin with 0; >= 1
/// @param add   adds samples to the sums. Throws DataError if the samples do not match the meter
/// @param read  computes the results from the sums over all samples; ExactSum::value rounds each once
Meter meter_of_sums(std::vector<Result> results, std::size_t sums,
                    std::function<void(const Samples& samples, std::span<ExactSum> sums)> add,
                    std::function<Reading(std::span<const ExactSum> sums)> read);

/// A row of the table of meters. A program can append rows to engine::Registry::meters.
struct MeterRow {
  std::string name;
  std::string help;   ///< the quantity that the meter computes
  std::string needs;  ///< the required output and target
  KeySpecs keys;      ///< keys of the options, with names without a section: "k" for "top_k,k=3"
  /// @param classes  C of the task, or the number of outputs
  /// @throws ConfigError  the options contradict each other or the classes
  std::function<Meter(const Section& options, std::int64_t classes)> make;
  /// Replaces `make` in rows that read more of the task, of which the option `classes` changes Task::classes.
  std::function<Meter(const Section& options, const Task& task)> make_for_task = {};
};

/// top_k, confusion, overlap, perplexity, calibration, multilabel, probability, regression, regression_order, auroc,
/// average_precision, reidentification, field, well, spectral, pdebench, acc.
const std::vector<MeterRow>& builtin_meters();

/// The options that every meter has.
const KeySpecs& common_meter_keys();

/// Creates a meter from its text in a configuration: "confusion", "top_k,k=3". Every meter also has the options
/// `output` and `target` (see Reads; if empty, those that the row sets), `classes` (instead of the number of the task),
/// and `prefix` (names become "prefix/name").
/// @param place  start of messages
/// @throws ConfigError  the name or an option is unknown (the message states similar names), or the row rejects a value
Meter make_meter(const std::string& text, const Task& task, const std::string& place,
                 const std::vector<MeterRow>& rows = builtin_meters());
/// The same for a task of which only the number of classes is known.
Meter make_meter(const std::string& text, std::int64_t classes, const std::string& place,
                 const std::vector<MeterRow>& rows = builtin_meters());

}  // namespace lockstep::metrics
