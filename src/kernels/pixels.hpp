// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

// Loops over pixels that take most of the time. They are compiled for several processors; the results do not depend on
// the processor.

/// a + factor * (b - a) in float32, truncated; clipped where the factor is outside [0, 1].
LOCKSTEP_INLINE std::uint8_t blend(int a, int b, float factor) {
  const float value = static_cast<float>(a) + factor * static_cast<float>(b - a);
  return static_cast<std::uint8_t>(value <= 0 ? 0 : value >= 255 ? 255 : static_cast<int>(value));
}

LOCKSTEP_INLINE std::uint8_t luminance(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
}

/// Luminance of each RGB pixel.
void luminance(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* out);
/// @param channels  1 or 3
std::int64_t sum_of_luminance(const std::uint8_t* pixels, std::size_t count, int channels);
/// Blends each RGB pixel with its luminance.
void saturate(std::uint8_t* rgb, std::size_t pixels, float factor);
/// Blends bytes of a row with their smoothed values, (neighbors + 5 center) / 13.
/// @param above, row, below  rows of pixels with this number of channels; the first pixel is left out
/// @param count              bytes to write
void sharpen(const std::uint8_t* above, const std::uint8_t* row, const std::uint8_t* below, std::size_t channels,
             std::size_t count, float factor, std::uint8_t* out);
/// Reverses the order of pixels of a row. @param channels  1 or 3
void reverse_pixels(std::uint8_t* row, std::size_t pixels, int channels);

/// Writes planes of floats: out[c * plane + i] = table[c * 256 + bytes[i * channels + c]].
void look_up(const std::uint8_t* bytes, std::size_t pixels, int channels, const float* table, std::size_t plane,
             float* out);
/// The same with the channels of each pixel adjacent: out[i * channels + c] = table[c * 256 + bytes[i * channels + c]].
void look_up_pixels(const std::uint8_t* bytes, std::size_t pixels, int channels, const float* table, float* out);

// Loops over rows of float32 numbers of images and samples. The same bits at any level.

/// out = share * own + (1 - share) * partner
/// @param out  may be `own`
void blend_rows(const float* own, const float* partner, std::size_t count, double share, float* out);

/// out[i] = sum over k of kernel[k] * in[i + k * step].
void weighted_sums(const float* in, std::size_t count, std::size_t step, const float* kernel, int size, float* out);

/// round(value), half to even, of numbers in [0, 255].
void round_to_bytes(const float* in, std::size_t count, std::uint8_t* out);

}  // namespace lockstep::kernels
