// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "models/patch_products.hpp"

// Convolutions of each channel with a kernel of its own. Without AVX-512, oneDNN takes three times as long for them,
// and ten times as long for the gradient of the weight.
namespace lockstep::models {

/// Images with the channels innermost, contiguous.
struct DepthwiseConvolution {
  const float* images;  ///< [samples, height, width, channels]
  const float* weight;  ///< [channels, kernel, kernel]
  const float* bias;    ///< [channels], or null
  std::int64_t samples;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;  ///< a multiple of kPatchChannels
  std::int64_t kernel;    ///< as has_depthwise_product accepts it
  std::int64_t out_height;
  std::int64_t out_width;
  std::int64_t stride;  ///< 1 or 2
  std::int64_t padding;
  bool is_turned = false;  ///< the kernels are turned by 180 degrees, as in the gradient of the input
};

/// Whether this processor can compute it with such a kernel and stride.
bool has_depthwise_product(std::int64_t kernel, std::int64_t stride);

/// result [samples, out_height, out_width, channels]. Each element is summed in a fixed order.
void write_depthwise_convolution(const DepthwiseConvolution& of, float* result);

/// The gradient of the weight: outputs = channels, and result [channels, kernel_height, kernel_width]. Each element is
/// summed over the pixels in their order.
void write_depthwise_product(const PatchProduct& product, float* result);

}  // namespace lockstep::models
