// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/transform.hpp>

#include <vector>

namespace lockstep::data {

/// The weights of torchvision's gaussian_blur. @param size  odd; @param sigma  > 0
std::vector<float> gaussian_kernel(int size, double sigma);

/// Blurs with the kernel of torchvision: float32, reflected edges, rounded half to even.
/// @param size  odd, in [1, kMaxBlurKernel]
void gaussian_blur(Image& image, int size, double sigma, Workspace& workspace);
inline constexpr int kMaxBlurKernel = 255;

/// Blurs as Pillow's GaussianBlur: three box blurs in each direction.
void gaussian_blur_pil(Image& image, double radius, Workspace& workspace);

}  // namespace lockstep::data
