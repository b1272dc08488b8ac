// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::checkpoints {

/// Statistics of the elements of an array. Booleans count as 0 and 1; of complex numbers both parts count as elements.
struct Statistics {
  double min = 0;  ///< this and the next three are of the finite elements; all 0 when there are none
  double max = 0;
  double mean = 0;
  double rms = 0;  ///< square root of the mean square
  std::uint64_t nans = 0;
  std::uint64_t infs = 0;   ///< infs of either sign
  std::uint64_t zeros = 0;  ///< zeros of either sign
  bool operator==(const Statistics&) const = default;
};

/// Gathers the statistics of an array from its parts, one after the other. Equal parts give equal bits.
class StatisticsSum {
 public:
  /// @param bytes  whole elements
  void add(DType dtype, std::span<const std::byte> bytes);
  /// Adds the statistics that another one has gathered, as of the part that follows.
  void add(const StatisticsSum& next);
  Statistics result() const;

 private:
  std::uint64_t count_ = 0;  // count of finite elements
  double min_ = 0;
  double max_ = 0;
  double sum_ = 0;
  double square_sum_ = 0;
  std::uint64_t nans_ = 0;
  std::uint64_t infs_ = 0;
  std::uint64_t zeros_ = 0;
};

Statistics statistics_of(DType dtype, std::span<const std::byte> bytes);

}  // namespace lockstep::checkpoints
