// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/initial_values.hpp"

#include <lockstep/models/model.hpp>

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <torch/types.h>

#include <cmath>

namespace lockstep::models {

namespace {

thread_local int pending = 0;

}  // namespace

PendingValues::PendingValues() noexcept { ++pending; }
PendingValues::~PendingValues() { --pending; }
bool PendingValues::are_pending() noexcept { return pending > 0; }

void draw_normal(at::Tensor values, double mean, double deviation) {
  const torch::NoGradGuard no_grad;
  if (!PendingValues::are_pending()) values.normal_(mean, deviation);
}

void draw_uniform(at::Tensor values, double from, double target) {
  const torch::NoGradGuard no_grad;
  if (!PendingValues::are_pending()) values.uniform_(from, target);
}

at::Tensor with_channels_last(const at::Tensor& values) {
  if (!PendingValues::are_pending()) return values.contiguous(at::MemoryFormat::ChannelsLast);
  return torch::empty(values.sizes(), values.options().memory_format(at::MemoryFormat::ChannelsLast));
}

at::Tensor resize_positions(const at::Tensor& positions, std::int64_t prefix_tokens, const PatchGrid& old_grid,
                            const PatchGrid& new_grid) {
  const at::Tensor grid = positions.slice(1, prefix_tokens)
                              .to(at::kFloat)
                              .reshape({1, old_grid.height, old_grid.width, positions.size(2)})
                              .permute({0, 3, 1, 2});
  const at::Tensor resized =
      at::_upsample_bicubic2d_aa(grid, {new_grid.height, new_grid.width}, /*align_corners=*/false)
          .permute({0, 2, 3, 1})
          .reshape({1, new_grid.height * new_grid.width, positions.size(2)});
  return at::cat({positions.slice(1, 0, prefix_tokens), resized.to(positions.scalar_type())}, 1);
}

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
