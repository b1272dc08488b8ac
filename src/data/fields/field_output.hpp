// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "arrays/time_axis.hpp"
#include "data/fields/field_dataset.hpp"

/// The description of predicted fields for a file in which they are stored like the targets.
namespace lockstep::data {

/// A variable of the output: a channel of the targets, or the channels of a stored array if they have no names.
struct OutputVariable {
  std::string name;
  std::int64_t channels = 1;
  bool has_channel_axis = false;
  arrays::Attributes attributes;  ///< those of the stored array that do not describe its storage
};

struct OutputAxis {
  std::string name;
  std::int64_t size = 0;
  std::vector<double> coordinates;  ///< empty = unknown
  bool is_double = true;            ///< type of the stored coordinates
  arrays::Attributes attributes;
};

/// The fields of one sample: `steps` times [channels, space...], as in the targets.
struct FieldOutput {
  std::vector<OutputVariable> variables;
  std::vector<OutputAxis> space;
  std::int64_t steps = 1;
  bool has_classes = false;  ///< one variable with the numbers of classes
  arrays::TimeUnit time_unit = {};
  arrays::Attributes time_attributes;  ///< empty = the files have no times

  std::int64_t channels() const;
  bool has_times() const { return !time_attributes.empty(); }
};

/// @param target_channels  number of channels of a prediction, of all steps together
/// @throws DataError  a file cannot be read, or the channels are not those of the data set
FieldOutput output_of(const FieldDescription& description, std::int64_t target_channels);

/// The times of predictions, if all files have times.
class OutputTimes {
 public:
  OutputTimes(const FieldDescription& description, const FieldOutput& output);

  /// The time of the last step of the input, in the unit of the output.
  double reference(const FieldPlace& place) const;
  /// The time for which each step is predicted. Times beyond the files or beyond a gap continue those before; NaN = the
  /// steps of time are not equal.
  std::vector<double> valid(const FieldPlace& place) const;

 private:
  struct TimeSeries {
    std::vector<double> times;  ///< seconds
    double step = 0;            ///< seconds between two steps; NaN = they differ
    std::vector<bool> gaps;     ///< see FieldSeries
  };
  /// The position of the first step of a pair of files.
  struct PairStart {
    std::size_t series = 0;
    std::int64_t begin = 0;
  };
  double in_unit(double seconds) const;
  /// The last step of the input, counted from the first one of its series.
  std::int64_t newest_step(const FieldPlace& place) const;

  std::vector<TimeSeries> series_;
  std::vector<PairStart> starts_;  ///< one for each pair
  WindowRule rule_;
  arrays::TimeUnit unit_;
};

/// The data set of fields behind a data set; null = it is another one.
const FieldDataset* fields_of(const Dataset& dataset);

}  // namespace lockstep::data
