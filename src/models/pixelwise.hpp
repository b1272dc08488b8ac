// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/functional.hpp>

#include <ATen/core/Tensor.h>

// Convolutions with a kernel of one pixel, which are products of matrices.
namespace lockstep::models {

/// Whether each output pixel is a product of the weight and one input pixel.
inline bool is_pixelwise(const at::Tensor& weight, const Convolution& of) {
  return weight.size(2) == 1 && weight.size(3) == 1 && of.padding == 0 && of.groups == 1 && !of.is_transposed;
}

/// [N, C, H, W] as [N, H, W, C], of the same memory.
inline at::Tensor pixels_of(const at::Tensor& images) { return images.permute({0, 2, 3, 1}); }
inline at::Tensor images_of(const at::Tensor& pixels) { return pixels.permute({0, 3, 1, 2}); }

/// The pixels that a pixelwise convolution reads: every stride-th of each direction, as a view of [N, H, W, C].
inline at::Tensor read_pixels_of(const at::Tensor& images, std::int64_t stride) {
  return pixels_of(images).slice(1, 0, std::nullopt, stride).slice(2, 0, std::nullopt, stride);
}

/// [out, in, 1, 1] as [out, in].
inline at::Tensor matrix_of(const at::Tensor& weight) { return weight.reshape({weight.size(0), weight.size(1)}); }

}  // namespace lockstep::models
