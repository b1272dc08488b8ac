// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

inline constexpr std::int64_t kFirstAxis = 2;  ///< dimensions before it: samples and channels

/// How a convolution continues an axis beyond its ends.
enum class AxisPadding : std::uint8_t { zero, circular, replicate, reflect };

/// A field with one more point at both ends of each axis.
/// @param input     [N, C, space...] with at least one point on each axis, two on those of `reflect`
/// @param paddings  one for each axis
at::Tensor padded(const at::Tensor& input, const std::vector<AxisPadding>& paddings);

}  // namespace lockstep::models
