// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_windows.hpp"

#include <algorithm>

namespace lockstep::data {

std::int64_t WindowRule::span() const {
  return (steps_in - 1) * stride + (steps_out > 0 ? lead + (steps_out - 1) * stride : 0);
}

std::vector<std::int64_t> WindowRule::input_steps(std::int64_t start) const {
  std::vector<std::int64_t> steps;
  for (std::int64_t k = 0; k < steps_in; ++k) steps.push_back(start + k * stride);
  return steps;
}

std::vector<std::int64_t> WindowRule::target_steps(std::int64_t start) const {
  std::vector<std::int64_t> steps;
  for (std::int64_t k = 0; k < steps_out; ++k) steps.push_back(start + (steps_in - 1 + k) * stride + lead);
  return steps;
}

std::vector<std::int64_t> starts_in(std::int64_t begin, std::int64_t end, const WindowRule& rule,
                                    const std::vector<bool>& gaps) {
  std::vector<std::int64_t> starts;
  const std::int64_t span = rule.span();
  std::int64_t gap = -1;  // the last gap before the end of the window, and the first step that was not searched
  std::int64_t searched = begin;
  for (std::int64_t start = begin; start + span < end; start += rule.every) {
    for (searched = std::max(searched, start); searched < start + span; ++searched) {
      if (searched < std::ssize(gaps) && gaps[static_cast<std::size_t>(searched)]) gap = searched;
    }
    if (gap < start) starts.push_back(start);
    if (rule.is_first_only) break;
  }
  return starts;
}

}  // namespace lockstep::data
