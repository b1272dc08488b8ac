// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/functional.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/slice_backward.h>

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

/// Whether they are images on the CPU in this order. Not so where the strides do not say it: with one channel or one
/// pixel, LibTorch takes the usual layout.
inline bool is_channels_last(const at::Tensor& images) {
  return images.is_cpu() && images.dim() == 4 && images.numel() > 0 &&
         images.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         images.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}
inline bool is_channels_last_float(const at::Tensor& images) {
  return images.scalar_type() == at::kFloat && is_channels_last(images);
}

// Convolutions with a kernel of one pixel, which are products of matrices.

/// Whether each output pixel is a product of the weight and one input pixel.
inline bool is_pixelwise(const at::Tensor& weight, const Convolution& geometry) {
  return weight.size(2) == 1 && weight.size(3) == 1 && geometry.padding == 0 && geometry.groups == 1 &&
         !geometry.is_transposed;
}

/// [N, C, H, W] as [N, H, W, C], of the same memory.
inline at::Tensor pixels_of(const at::Tensor& images) { return images.permute({0, 2, 3, 1}); }
inline at::Tensor images_of(const at::Tensor& pixels) { return pixels.permute({0, 3, 1, 2}); }

/// The pixels that a pixelwise convolution reads: every stride-th of each direction, as a view of [N, H, W, C].
inline at::Tensor read_pixels_of(const at::Tensor& images, std::int64_t stride) {
  return pixels_of(images).slice(1, 0, std::nullopt, stride).slice(2, 0, std::nullopt, stride);
}

/// Whether oneDNN would have to skip pixels. For the gradient of the weight of such convolutions with 2 to 7 input
/// channels, that of LibTorch 2.11 writes past the end of a buffer at level avx2. The pixels are therefore selected
/// before it is called.
inline bool skips_pixels(const at::Tensor& weight, const Convolution& geometry) {
  return geometry.stride != 1 && weight.dim() == 4 && is_pixelwise(weight, geometry) &&
         weight.scalar_type() == at::kFloat && weight.is_cpu();
}

/// The gradient of images, from that of their pixels in the way of read_pixels_of. Differentiable.
/// @param pixels  [N, H', W', C]
/// @param sizes   of the images, [N, C, H, W]
inline at::Tensor spread_pixels(const at::Tensor& pixels, at::IntArrayRef sizes, std::int64_t stride) {
  const std::int64_t height = sizes[2];
  const std::int64_t width = sizes[3];
  const at::Tensor rows = at::slice_backward(pixels, {sizes[0], pixels.size(1), width, sizes[1]}, 2, 0, width, stride);
  return images_of(at::slice_backward(rows, {sizes[0], height, width, sizes[1]}, 1, 0, height, stride));
}

/// [out, in, 1, 1] as [out, in].
inline at::Tensor matrix_of(const at::Tensor& weight) { return weight.reshape({weight.size(0), weight.size(1)}); }

}  // namespace lockstep::models
