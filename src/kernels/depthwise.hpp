// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "kernels/convolution_products.hpp"

namespace lockstep::kernels {

// Convolutions of each channel with a kernel of its own. oneDNN takes three times as long for those of 7x7, and at
// level avx2 ten times as long for the gradient of the weight.

/// Images with the channels innermost, contiguous.
struct DepthwiseConvolution {
  const float* images;  ///< [samples, height, width, channels]
  const float* weight;  ///< [channels, kernel, kernel]
  const float* bias;    ///< [channels], or null
  std::int64_t samples;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;  ///< a multiple of kPatchChannels
  std::int64_t kernel;    ///< a size that is_depthwise_size accepts
  std::int64_t out_height;
  std::int64_t out_width;
  std::int64_t stride;  ///< 1 or 2
  std::int64_t padding;
  bool is_turned = false;  ///< the kernels are turned by 180 degrees, as in the gradient of the input
};

/// Whether there is a kernel for it.
bool is_depthwise_size(std::int64_t kernel, std::int64_t stride);

/// Channels that are worked on together.
inline constexpr std::int64_t kDepthwiseChannels = 16;
inline std::int64_t depthwise_blocks(std::int64_t channels) {
  return (channels + kDepthwiseChannels - 1) / kDepthwiseChannels;
}

/// result [samples, out_height, out_width, channels]. Each element is summed in a fixed order.
/// @param begin, end  blocks of channels of all samples: [0, samples * depthwise_blocks(channels)) for the whole result
void write_depthwise_convolution(const DepthwiseConvolution& convolution, std::int64_t begin, std::int64_t end,
                                 float* result);

/// The gradient of the weight: outputs = channels, and result [channels, kernel_height, kernel_width]. Each element is
/// summed over the pixels in their order.
/// @param begin, end  blocks of channels: [0, depthwise_blocks(channels)) for the whole result
void write_depthwise_product(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result);

}  // namespace lockstep::kernels
