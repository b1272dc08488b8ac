// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

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
