// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/unused_parameters.hpp"

#include <lockstep/log/log.hpp>

#include <algorithm>

namespace lockstep::parallel {

void UnusedParameters::find(std::span<const at::Tensor> outputs, const std::vector<NodeHandle>& accumulators) {
  graph_.collect(outputs);
  for (std::size_t i = 0; i < is_unused_.size(); ++i) {
    is_unused_[i] = graph_.contains(accumulators[i].get()) ? char{0} : char{1};
  }
  if (first_unused_.empty()) first_unused_ = is_unused_;
  are_constant_ = are_constant_ && is_unused_ == first_unused_;
  warn_if_none();
}

void UnusedParameters::clear() { std::fill(is_unused_.begin(), is_unused_.end(), char{0}); }

void UnusedParameters::warn_if_none() {
  const bool is_any_unused = std::find(is_unused_.begin(), is_unused_.end(), char{1}) != is_unused_.end();
  if (is_any_unused || has_warned_) return;
  has_warned_ = true;
  log::warning(
      "ddp.find_unused_parameters=true, but all parameters were used: disable it to avoid a traversal of the graph in "
      "every step");
}

}  // namespace lockstep::parallel
