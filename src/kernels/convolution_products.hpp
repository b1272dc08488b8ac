// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::kernels {

// The gradient of the weight of a convolution. At level avx2, oneDNN takes two to six times as long for it as for the
// forward, which has as many multiplications.

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

/// Panels of columns of the result, which threads divide.
std::int64_t patch_panels(const PatchProduct& product);
inline constexpr std::int64_t kGrainPanels = 4;  ///< below them a second thread costs more than it saves

/// result [outputs, kernel_height, kernel_width, channels] = gradients^T times the patches of the images under the
/// kernel. Each element is summed over blocks of pixels in a fixed order: the same bits with any number of threads.
/// @param begin, end  panels: [0, patch_panels(product)) for the whole result
void write_patch_product(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result);

}  // namespace lockstep::kernels
