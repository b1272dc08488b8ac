// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// Loops over rows of float32 numbers of images and samples. The same bits at any level.
namespace lockstep::kernels {

/// out = share * own + (1 - share) * partner
/// @param out  may be `own`
void blend_rows(const float* own, const float* partner, std::size_t count, double share, float* out);

/// out[i] = sum over k of kernel[k] * in[i + k * step].
void weighted_sums(const float* in, std::size_t count, std::size_t step, const float* kernel, int size, float* out);

/// round(value), half to even, of numbers in [0, 255].
void round_to_bytes(const float* in, std::size_t count, std::uint8_t* out);

}  // namespace lockstep::kernels
