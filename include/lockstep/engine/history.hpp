// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::engine {

/// The values of one metric in the order in which they came: the last `longest` of them, and the mean of all there
/// were. A window is a number of latest values; of fewer there are, all.
class History {
 public:
  struct Entry {
    double value = 0;  ///< of `count` samples together: their sum
    std::int64_t step = 0;
    std::int64_t count = 1;
  };
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  /// @throws std::invalid_argument  longest is 0
  explicit History(std::size_t longest = 1'000'000);

  /// @throws std::invalid_argument  count < 1
  void add(const Entry& entry);

  std::size_t size() const noexcept { return entries_.size(); }  ///< what is kept
  /// The i-th of what is kept, oldest first.
  /// @throws std::out_of_range  there are fewer
  const Entry& at(std::size_t i) const;
  const Entry& latest() const { return at(size() - 1); }

  // All of these throw std::out_of_range where there is no value, and std::invalid_argument for a window of 0.
  double median(std::size_t window) const;  ///< of an even number of values: the mean of the middle two
  double mean(std::size_t window) const;    ///< of samples: the sum of values by the sum of counts
  double min(std::size_t window) const;
  double max(std::size_t window) const;
  /// Of all values there were, the forgotten ones among them.
  double mean_of_all() const;

  /// How many of the latest values came in the last `steps` steps up to the latest value's own.
  std::size_t count_within(std::int64_t steps) const noexcept;

 private:
  std::vector<double> values(std::size_t window) const;

  std::size_t longest_;
  std::vector<Entry> entries_;  // a ring once it is full
  std::size_t oldest_ = 0;
  double sum_ = 0;
  double lost_ = 0;  // what rounding took from sum_
  std::int64_t count_ = 0;
};

}  // namespace lockstep::engine
