// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include "core/text/every.hpp"

namespace lockstep::optim {

/// The steps or epochs between updates of the average, ema.every. A number of steps counts from the first averaged step
/// and is AverageOptions::interval; otherwise, that is 1, and the caller updates the average at these times.
/// @throws ConfigError  malformed, or a time of the clock
Every average_times(const Section& ema);

}  // namespace lockstep::optim
