// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/adapted_weights.hpp"

#include <lockstep/models/model.hpp>
#include <lockstep/models/positions.hpp>

#include <torch/types.h>

#include <cmath>

namespace lockstep::models {

at::Tensor adapt_positions(const at::Tensor& positions, const Anatomy& anatomy) {
  const std::int64_t count = positions.dim() == 3 && positions.size(0) == 1 ? positions.size(1) : -1;
  const std::int64_t cells = count - anatomy.prefix_tokens;
  const std::int64_t side = cells > 0 ? std::llround(std::sqrt(static_cast<double>(cells))) : 0;
  if (side == 0 || side * side != cells) return {};
  return resize_positions(positions, anatomy.prefix_tokens, {side, side}, {anatomy.grid_height, anatomy.grid_width});
}

at::Tensor adapt_channels(const at::Tensor& weight, std::int64_t channels) {
  const at::Tensor values = weight.to(at::kFloat);
  if (channels == 1) return values.sum(1, true);
  const std::int64_t known = values.size(1);
  const std::vector<at::Tensor> copies(static_cast<std::size_t>((channels + known - 1) / known), values);
  return at::cat(copies, 1).slice(1, 0, channels) * (static_cast<double>(known) / static_cast<double>(channels));
}

}  // namespace lockstep::models
