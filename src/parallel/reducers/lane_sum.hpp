// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

namespace lockstep::parallel {

/// Adds one number per lane by the tree that sums the gradients of lanes. Not collective.
double sum_by_lanes(std::span<const double> values);

}  // namespace lockstep::parallel
