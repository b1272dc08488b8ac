// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/sample_errors.hpp>

#include <utility>

namespace lockstep::data {

void SampleErrors::add(const BadSample& sample) {
  const std::scoped_lock lock(mutex_);
  if (!names_.insert(sample.name).second) return;
  new_.push_back(sample);
  if (static_cast<std::int64_t>(names_.size()) > max_) {
    throw DataError("more than data.max_errors = " + std::to_string(max_) +
                    " samples cannot be read; the last one: " + sample.reason);
  }
}

std::vector<BadSample> SampleErrors::take_new() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(new_, {});
}

}  // namespace lockstep::data
