// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "data/fields/field_files.hpp"
#include "data/fields/field_normalization.hpp"
#include "data/fields/field_windows.hpp"

namespace lockstep::data {

/// A file of inputs and that of its targets, which are often the same.
struct FieldPair {
  FieldFile inputs;
  FieldFile targets;
};

/// Files whose steps follow one another, and the windows in them.
struct FieldSeries {
  std::vector<std::size_t> files;          ///< numbers of pairs, in the order of time
  std::vector<std::int64_t> begins;        ///< the first step of each file, counted from that of the first file
  std::vector<std::int64_t> trajectories;  ///< those of the files that belong to the data set
  std::vector<std::int64_t> starts;        ///< the first step of each window
  std::int64_t begin = 0;                  ///< the steps [begin, end) belong to the data set
  std::int64_t end = 0;
  std::vector<bool> gaps = {};  ///< whether there is a gap of time after each step; empty = none

  std::int64_t samples() const { return std::ssize(trajectories) * std::ssize(starts); }
};

/// The treatment of a point without a value (NaN, _FillValue).
enum class GapRule {
  error,
  zero,  ///< 0 in inputs and targets, in their units
  mean   ///< the mean of its channel in inputs, which is 0 after normalization; 0 in targets
};

/// Everything that the samples of a split have in common.
struct FieldDescription {
  std::vector<FieldPair> pairs;
  std::vector<FieldSeries> series;
  std::vector<std::size_t> too_short = {};  ///< numbers of the pairs that are left out, because no window fits
  SampleSpace space;
  WindowRule rule;
  std::vector<float> statics = {};  ///< fields without time, [S, space...]; gaps are NaN
  std::vector<std::string> static_names = {};
  std::vector<float> positions = {};  ///< the same of what the sample's points are, which is not normalized
  std::vector<std::string> position_names = {};
  std::vector<std::string> cycles = {};  ///< "year" and "day": sine and cosine of the time of the first target
  GapRule gaps = GapRule::error;
  bool has_gap_channel = false;
  std::int64_t classes = 0;  ///< number of classes of a class map; 0 = the targets are numbers
  NormalizationRule normalization = {};
};

/// The number of the file in a series that has a step.
std::size_t file_of(const FieldSeries& series, std::int64_t step);

/// The steps of files whose values were found to be numbers. Files do not change while they are used (InputFile), so
/// that none of their values is looked at twice. Threads may use it at the same time.
class CheckedSteps {
 public:
  explicit CheckedSteps(const FieldDescription& description);

  /// @param pair  number of the files
  /// @param step  counted in the file
  bool has(std::size_t pair, bool are_targets, std::int64_t trajectory, std::int64_t step) const;
  void add(std::size_t pair, bool are_targets, std::int64_t trajectory, std::int64_t step);

 private:
  /// The number of a step among those of all files.
  std::size_t number(std::size_t pair, bool are_targets, std::int64_t trajectory, std::int64_t step) const;

  /// The steps of a file follow those of the files before it.
  struct StepsOfFile {
    std::size_t begin = 0;
    std::int64_t steps = 0;  ///< steps of a trajectory
  };
  std::vector<StepsOfFile> inputs_;
  std::vector<StepsOfFile> targets_;
  std::vector<std::atomic<std::uint64_t>> bits_;
};

/// Looks for gaps, where these are errors, and for infinite and other numbers that mean "no value".
/// @param values  [row][channel][point] of the channels of a file
/// @param place   of a row for the message: "step 3 of trajectory 0"
/// @throws DataError  there is one; names file, channel and place
template <class Value>
void require_values(const FieldDescription& description, const FieldFile& file, bool are_targets,
                    std::span<const Value> values, const std::function<std::string(std::int64_t row)>& place);

/// Reads steps of a trajectory of a series into out[step][channel][point]; gaps are NaN.
/// @param stride   distance of the steps, which ascend
/// @param checked  steps that need not be looked at; receives those that were; null = all are looked at
/// @throws DataError  a gap, if these are errors; names file, channel and step
template <class Value>
void read_series(const FieldDescription& description, arrays::OpenFiles& files, const FieldSeries& series,
                 std::int64_t trajectory, std::span<const std::int64_t> steps, std::int64_t stride, bool are_targets,
                 Value* out, CheckedSteps* checked = nullptr);

}  // namespace lockstep::data
