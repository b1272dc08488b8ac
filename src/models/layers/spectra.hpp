// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// Frequencies of fields: N samples of C channels over 1 to 3 axes of space. Both functions can be differentiated any
// number of times. Each is, but for factors, the adjoint of the other, so that a gradient takes as long as the function
// itself; LibTorch transforms the omitted frequencies, too.
namespace lockstep::models {

/// The places of the frequencies of an axis.
enum class FrequencyOrder : std::uint8_t {
  standard,  ///< that of Fourier transforms: 0, 1, ..., -2, -1
  shifted    ///< each frequency k is at the place of k - 1, on axes but the last with an odd number of points
};

/// The lowest frequencies of a real field, divided by the number of points.
/// @param field   [N, C, space...] float32 or float64
/// @param counts  number of frequencies K of each axis, in ascending order from -(K / 2) on; on the last axis from 0 on
/// @return        [N, C, K...] complex
at::Tensor lowest_frequencies(const at::Tensor& field, const std::vector<std::int64_t>& counts,
                              FrequencyOrder order = FrequencyOrder::standard);

/// The real field with these frequencies, and no others.
/// @param frequencies  [N, C, K...] complex, as those of lowest_frequencies
/// @param sizes        points of each axis of space
/// @return             [N, C, sizes...]
at::Tensor field_of_frequencies(const at::Tensor& frequencies, const std::vector<std::int64_t>& sizes,
                                FrequencyOrder order = FrequencyOrder::standard);

/// Multiplies the lowest frequencies of a field with a matrix each, and drops the others. Can be differentiated any
/// number of times. The kernel frequency_products multiplies float32 numbers of a CPU where they lie.
/// @param field   [N, in, space...] float32 or float64
/// @param weight  [in, out, K of each axis, 2] of the same type: complex numbers; K as the counts of lowest_frequencies
/// @param order   that of the frequencies which are written; those that are read have the standard one
/// @return        [N, out, space...]
at::Tensor spectral_convolution(const at::Tensor& field, const at::Tensor& weight, FrequencyOrder order);

}  // namespace lockstep::models
