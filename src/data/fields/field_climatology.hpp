// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "arrays/array_file.hpp"
#include "core/keys/cited.hpp"
#include "data/fields/field_series.hpp"

namespace lockstep::data {

/// Usual fields of the target channels: one of each, or one for each month or day of the year.
class FieldClimatology {
 public:
  /// Opens FILE:VARIABLE, or an npy FILE. The variable has the axes of space of the samples, before them a channel axis
  /// if it has several channels, and before these an axis of 12 months or 366 days of the year if it depends on time.
  /// Channels are found by their names if the file names all of them, otherwise by their positions.
  /// @throws ConfigError, DataError  it does not fit the targets, or the files have no times
  FieldClimatology(const Cited<std::string>& choice, const FieldDescription& description, arrays::OpenFiles& files);

  /// Reads the fields of a step of a series into out[channel][point].
  void read(const FieldDescription& description, arrays::OpenFiles& files, const FieldSeries& series, std::int64_t step,
            float* out) const;

 private:
  /// The position on the axis of months or days.
  std::int64_t entry_of(const FieldDescription& description, const FieldSeries& series, std::int64_t step) const;

  FieldFile file_;  ///< its trajectories are the months or days
};

}  // namespace lockstep::data
