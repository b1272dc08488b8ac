// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// The gradient of the weight of a convolution. Without AVX-512, oneDNN takes two to six times as long for it as for the
// forward, which has as many multiplications. A vector kernel.
namespace lockstep::models {

/// Images, and gradients of what a convolution computed from them, with the channels innermost, both contiguous.
struct PatchProduct {
  const float* images;     ///< [samples, height, width, channels]
  const float* gradients;  ///< [samples, out_height, out_width, outputs]
  std::int64_t samples;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;  ///< a multiple of kPatchChannels
  std::int64_t out_height;
  std::int64_t out_width;
  std::int64_t outputs;  ///< a multiple of kPatchOutputs
  std::int64_t kernel_height;
  std::int64_t kernel_width;
  std::int64_t stride;
  std::int64_t padding;
};

inline constexpr std::int64_t kPatchChannels = 8;
inline constexpr std::int64_t kPatchOutputs = 4;

/// result [outputs, kernel_height, kernel_width, channels] = gradients^T times the patches of the images under the
/// kernel. Each element is summed over blocks of pixels in a fixed order: the same bits with any number of threads.
void write_patch_product(const PatchProduct& product, float* result);

}  // namespace lockstep::models
