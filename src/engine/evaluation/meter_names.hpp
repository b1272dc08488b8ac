// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "core/keys/cited.hpp"

namespace lockstep::engine {

/// Meters with their options, as eval.metrics and train.metrics name them.
using MeterNames = Cited<std::vector<std::string>>;

}  // namespace lockstep::engine
