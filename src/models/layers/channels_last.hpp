// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>

namespace lockstep::models {

/// Images [N, C, H, W] with the channels of each pixel adjacent in memory: the same tensor if it has this order (as
/// batches have for a model with FamilyRow::prefers_channels_last), otherwise a copy. at::Tensor::contiguous does not
/// do this, because images of one channel count as contiguous in any order.
inline at::Tensor channels_last(const at::Tensor& images) {
  const std::int64_t channels = images.size(1);
  const std::int64_t row = channels * images.size(3);
  const std::int64_t image = row * images.size(2);
  const bool has_order = images.strides() == at::IntArrayRef({image, 1, row, channels});
  return has_order ? images : images.clone(at::MemoryFormat::ChannelsLast);
}

/// Whether they are float32 images on the CPU in this order. Not so where the strides do not say it: with one channel
/// or one pixel, LibTorch takes the usual layout.
inline bool is_channels_last_float(const at::Tensor& images) {
  return images.is_cpu() && images.dim() == 4 && images.scalar_type() == at::kFloat && images.numel() > 0 &&
         images.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         images.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

}  // namespace lockstep::models
