// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace lockstep::data {

/// A sample that could not be read and was replaced by another one.
struct BadSample {
  std::string name;    ///< result of ImageStore::name
  std::string reason;  ///< message of the error
};

/// The samples that a run replaces because they cannot be read (data.on_error = replace). Thread-safe.
class SampleErrors {
 public:
  /// @param max  `data.max_errors`: maximum number of different samples
  explicit SampleErrors(std::int64_t max) : max_(max) {}

  /// Records a replaced sample; a sample that is already known is not recorded again.
  /// @throws DataError  there are more than `max` of them
  void add(const BadSample& sample);
  /// The samples that were recorded since the last call, in their order.
  std::vector<BadSample> take_new();
  std::int64_t max() const noexcept { return max_; }

 private:
  std::int64_t max_;
  std::mutex mutex_;
  std::set<std::string> names_;
  std::vector<BadSample> new_;
};

}  // namespace lockstep::data
