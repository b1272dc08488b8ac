// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data {

/// Which steps of a trajectory belong to a sample. The inputs are the steps start + k * stride, and the targets the
/// steps (last input) + lead + k * stride.
struct WindowRule {
  std::int64_t steps_in = 1;
  std::int64_t steps_out = 1;  ///< 0 = no target
  std::int64_t stride = 1;
  std::int64_t lead = 1;
  std::int64_t every = 1;      ///< starts are multiples of it
  bool is_first_only = false;  ///< the only start is 0

  /// The number of steps from the first input to the last target, without the first one.
  std::int64_t span() const;
  std::vector<std::int64_t> input_steps(std::int64_t start) const;
  std::vector<std::int64_t> target_steps(std::int64_t start) const;
};

/// The starts of the windows that lie in the steps [begin, end) and do not cross a gap.
/// @param gaps  whether there is a gap after each step; empty = none
std::vector<std::int64_t> starts_in(std::int64_t begin, std::int64_t end, const WindowRule& rule,
                                    const std::vector<bool>& gaps);

}  // namespace lockstep::data
