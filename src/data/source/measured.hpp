// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/task.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// The meaning of the numbers of a MeasuredDataset.
struct MeasuredTask {
  Task task;
  std::string json = {};  ///< text for the run
  std::vector<std::string> notes = {};
};

/// A data set whose task needs numbers of all its values. They are measured in parts, which the ranks share; the parts
/// do not depend on the number of ranks.
class MeasuredDataset {
 public:
  virtual ~MeasuredDataset() = default;
  virtual std::int64_t parts() const = 0;  ///< 0 = nothing is to be measured
  virtual std::int64_t numbers_per_part() const = 0;
  /// Thread-safe.
  /// @throws DataError  values cannot be read, or are not finite
  virtual std::vector<double> measure(std::int64_t part) const = 0;
  /// @param parts  the numbers of all parts, in order
  /// @throws DataError  the numbers define no task
  virtual MeasuredTask result(const std::vector<std::vector<double>>& parts) const = 0;
  /// The file that keeps the numbers of all parts; parts have it with ".N" appended until then. "" = nothing is kept.
  virtual std::string cache_path() const = 0;
};

}  // namespace lockstep::data
