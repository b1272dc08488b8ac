// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_series.hpp"

namespace lockstep::data {

/// Moments of numbers, which can weigh. Gaps (NaN) do not count. Source: Chan et al., "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979, equations 2.1.
struct RunningMoments {
  double count = 0;
  double weight = 0;
  double mean = 0;
  double squares = 0;  ///< sum of weighted squares of differences from the mean
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void add(const RunningMoments& other);
  ChannelNumbers numbers() const;
};

/// The moments of values[step][point], each step `pitch` numbers after the one before.
/// @param weights  of the points; empty = 1
RunningMoments moments_of(const double* values, std::int64_t steps, std::int64_t pitch, std::int64_t points,
                          std::span<const double> weights);

/// Measures every stored value of the series of a description once, in parts.
class FieldStatistics {
 public:
  /// @param description  lives as long as this object
  FieldStatistics(const FieldDescription& description, std::shared_ptr<arrays::OpenFiles> files);

  std::int64_t parts() const noexcept { return parts_; }
  std::int64_t numbers_per_part() const;
  /// The moments of values and differences of each channel: those of the inputs, then, unless all targets are inputs,
  /// those of the targets.
  std::vector<double> measure(std::int64_t part) const;
  std::vector<FieldNumbers> joined(const std::vector<std::vector<double>>& parts) const;
  /// A warning for each channel with values outside of the valid_range of their array, which count nevertheless.
  std::vector<std::string> range_warnings(const std::vector<std::vector<double>>& parts) const;

 private:
  /// Steps of a trajectory, or, for arrays without time, rows.
  struct StepBlock {
    std::size_t series = 0;
    std::int64_t trajectory = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  struct Channel {
    RunningMoments values;
    RunningMoments differences;
    double outside = 0;  ///< values outside of the valid_range of their array
  };

  bool are_rows(const FieldSeries& series) const;
  void add_blocks(std::size_t number);
  void measure_block(const StepBlock& block, bool are_targets, std::span<Channel> channels) const;
  std::vector<std::string> channel_names() const;
  void count_outside(const double* values, std::int64_t steps, const FieldFile& file, std::int64_t trajectory,
                     std::span<Channel> channels) const;
  std::vector<double> read_block(const StepBlock& block, std::int64_t first, bool are_targets) const;

  const FieldDescription& description_;
  std::shared_ptr<arrays::OpenFiles> files_;
  std::vector<StepBlock> blocks_;
  std::int64_t parts_ = 0;
  bool measures_targets_ = false;
  std::vector<double> weights_;  // one for each point; empty = 1
};

/// The input channel of one step that each target channel of one step is; empty = some targets are no inputs.
std::vector<std::int64_t> inputs_of_targets(const FieldDescription& description);

}  // namespace lockstep::data
