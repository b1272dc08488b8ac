// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// output = (input - shift) / scale, in one pass. The same bits as a subtraction and a division, at every level.
/// @param fills_gaps  NaN becomes 0
void standardize(std::int64_t count, const float* input, float shift, float scale, bool fills_gaps, float* output);

}  // namespace lockstep::kernels
