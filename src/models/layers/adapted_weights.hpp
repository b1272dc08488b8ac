// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor_fwd.hpp>

#include <cstdint>

// Weights of a file, in the sizes of another model.
namespace lockstep::models {

struct Anatomy;

/// Resizes learned positions of a square grid to the grid of a model; see resize_positions.
/// @param positions  [1, prefix_tokens + side * side, E]
/// @return  [1, prefix_tokens + height * width, E], or an undefined tensor if the grid is not square
at::Tensor adapt_positions(const at::Tensor& positions, const Anatomy& anatomy);

/// Adapts the first convolution to another number of input channels: to one channel by the sum over the channels,
/// otherwise by repeating them, scaled such that the sum over the channels keeps its size.
/// @param weight    [O, C, ...] of a floating type
/// @param channels  new number of channels
/// @return  [O, channels, ...] float32
at::Tensor adapt_channels(const at::Tensor& weight, std::int64_t channels);

}  // namespace lockstep::models
