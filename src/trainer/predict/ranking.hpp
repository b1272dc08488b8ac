// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::trainer {

/// The indices of the k largest values, the largest first, and of equal values the first one first.
/// @param values  not NaN
std::vector<std::int64_t> top_indices(std::span<const double> values, std::int64_t k);

}  // namespace lockstep::trainer
