// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

// Random initial values of parameters. A model whose parameters are all loaded from a file needs none.

/// While it lives, the draws below leave parameters undefined in this thread, and nothing copies initial values: the
/// caller replaces every parameter before it is used.
class PendingValues {
 public:
  PendingValues() noexcept;
  ~PendingValues();
  PendingValues(const PendingValues&) = delete;
  PendingValues& operator=(const PendingValues&) = delete;

  /// Whether one lives in this thread.
  static bool are_pending() noexcept;
};

/// Fills a tensor with numbers of the default generator, without gradients.
void draw_normal(at::Tensor values, double mean, double deviation);
void draw_uniform(at::Tensor values, double from, double target);

/// The same values with the channels innermost.
at::Tensor with_channels_last(const at::Tensor& values);

// Weights of a file, in the sizes of another model.

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

/// A grid of patches.
struct PatchGrid {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// Learned positions for another grid: bicubic interpolation with antialiasing in float32. Positions of prefix tokens
/// are kept.
/// @param positions      [1, prefix_tokens + height * width, E]
/// @param prefix_tokens  tokens before those of the grid
/// @return               [1, prefix_tokens + new height * new width, E] of the type of `positions`
at::Tensor resize_positions(const at::Tensor& positions, std::int64_t prefix_tokens, const PatchGrid& old_grid,
                            const PatchGrid& new_grid);

/// The probability of DropPath in each of `depth` blocks: from 0 linearly to `rate`.
std::vector<double> drop_path_rates(double rate, std::int64_t depth);

}  // namespace lockstep::models
