// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/functional.hpp>

#include <ATen/core/Tensor.h>

namespace lockstep::models {

// Convolutions with a kernel of 3x3 and a stride of 1, which take 16 multiplications for a tile of 2x2 output pixels
// instead of 36, or 36 for a tile of 4x4 pixels instead of 144.
// Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016, section 4. Barabasz et al., "Error
// analysis and improving the accuracy of Winograd convolution", 2020, show how the error depends on the points.

/// Whether a convolution can be computed this way, and faster on this processor than by oneDNN.
bool is_for_winograd(const at::Tensor& weight, const Convolution& geometry);

/// Whether that is so even if the weight is transformed for this one convolution.
/// @param pixels  of the output, of all samples
bool is_transformed_once(std::int64_t pixels);

/// The faster side of tiles, 2 or 4, for images of the output.
/// @param samples  of the convolution for which the weight is transformed; 0 = it is transformed for many
std::int64_t winograd_side(std::int64_t samples, std::int64_t out_height, std::int64_t out_width);

/// The weight as these convolutions read it.
/// @param weight     [O, I, 3, 3] in channels-last layout, which is_for_winograd accepts
/// @param is_turned  for the gradient of the input: a convolution of the output's gradient
/// @param side       of the tiles
/// @return           [(side + 2)^2, kernels::winograd_distance(O I)]; turned, O and I change places
at::Tensor winograd_weight(const at::Tensor& weight, bool is_turned, std::int64_t side);

/// conv(images) + bias + residual, and a ReLU behind it if has_relu, with tiles of the side of the weight. The sums of
/// an output pixel have the same order with any number of samples and threads.
/// @param images       [N, I, H, W] float32 in channels-last layout
/// @param transformed  by winograd_weight
/// @param bias         [O], or undefined
/// @param residual     like the result, or undefined
/// @param padding      0 to 2 pixels
/// @return             [N, O, H + 2 padding - 2, W + 2 padding - 2] in channels-last layout
at::Tensor winograd_convolution(const at::Tensor& images, const at::Tensor& transformed, const at::Tensor& bias,
                                const at::Tensor& residual, std::int64_t padding, bool has_relu);

/// The gradient of the weight, where is_for_winograd accepts it.
/// @param images    [N, I, H, W] float32 in channels-last layout
/// @param gradient  of the output, likewise
/// @param side      of the tiles
/// @param result    [O, 3, 3, I]: the weight in channels-last layout
void write_winograd_gradient(const at::Tensor& images, const at::Tensor& gradient, std::int64_t padding,
                             std::int64_t side, float* result);

/// The faster side of tiles for the gradient of the weight.
/// @param gradient  of the output
std::int64_t winograd_gradient_side(const at::Tensor& gradient);

}  // namespace lockstep::models
