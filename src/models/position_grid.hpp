// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor_fwd.hpp>

#include <cstdint>

namespace lockstep::models {

struct PositionGrid {
  std::int64_t prefix_tokens = 0;  ///< tokens before the grid, which keep their values
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// Resizes learned positions to another grid: bicubic with antialiasing, in float32.
///
/// @param positions  [1, prefix_tokens + side * side, E] of a square grid
/// @return  [1, prefix_tokens + height * width, E] float32, or an undefined tensor if the grid is not square
at::Tensor resize_positions(const at::Tensor& positions, const PositionGrid& grid);

/// Adapts the first convolution to another number of input channels: to one channel by the sum over the channels,
/// otherwise by repeating them, scaled such that the sum over the channels keeps its size.
///
/// @param weight    [O, C, ...] of a floating type
/// @param channels  new number of channels
/// @return  [O, channels, ...] float32
at::Tensor adapt_channels(const at::Tensor& weight, std::int64_t channels);

}  // namespace lockstep::models
