// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>

#include "optim/closure/closure_step.hpp"

namespace lockstep::optim {

/// A point on the line of search.
struct Trial {
  double length = 0;  ///< multiple of the direction
  ClosureStep::LossPoint point;
  double slope = 0;  ///< slope of the loss along the direction
};

struct LineSearchOptions {
  double tolerance = 0;        ///< minimum length of the bracket
  std::int64_t max_tries = 0;  ///< maximum number of evaluations, but always one
};

/// The point where the strong Wolfe conditions hold, or the lowest point that was found. A loss that is not a number
/// counts as too high.
/// @param evaluate  at a place on the line
/// @param start     at 0, with a negative slope
/// @param first     where to look first
/// Source: Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6.
Trial search_line(const std::function<Trial(double length)>& evaluate, Trial start, double first,
                  const LineSearchOptions& options);

}  // namespace lockstep::optim
