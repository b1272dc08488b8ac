// SPDX-License-Identifier: BSD-3-Clause
#include "models/position_grid.hpp"

#include <torch/types.h>

#include <cmath>

namespace lockstep::models {

at::Tensor resize_positions(const at::Tensor& positions, const PositionGrid& grid) {
  const std::int64_t count = positions.dim() == 3 && positions.size(0) == 1 ? positions.size(1) : -1;
  const std::int64_t cells = count - grid.prefix_tokens;
  const std::int64_t side = cells > 0 ? std::llround(std::sqrt(static_cast<double>(cells))) : 0;
  if (side == 0 || side * side != cells) return {};
  const std::int64_t features = positions.size(2);
  const at::Tensor values = positions.to(at::kFloat);
  const at::Tensor square =
      values.slice(1, grid.prefix_tokens).reshape({1, side, side, features}).permute({0, 3, 1, 2});
  const at::Tensor resized = at::_upsample_bicubic2d_aa(square.contiguous(), {grid.height, grid.width}, false);
  return at::cat({values.slice(1, 0, grid.prefix_tokens), resized.permute({0, 2, 3, 1}).reshape({1, -1, features})}, 1);
}

at::Tensor adapt_channels(const at::Tensor& weight, std::int64_t channels) {
  const at::Tensor values = weight.to(at::kFloat);
  if (channels == 1) return values.sum(1, true);
  const std::int64_t known = values.size(1);
  std::vector<at::Tensor> copies(static_cast<std::size_t>((channels + known - 1) / known), values);
  return at::cat(copies, 1).slice(1, 0, channels) * (static_cast<double>(known) / static_cast<double>(channels));
}

}  // namespace lockstep::models
