// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::data {

/// The conversion of bytes to numbers with mean 0 and variance 1 (about).
struct PixelScale {
  float mean;       ///< mean of the values byte / 255
  float deviation;  ///< standard deviation of the values byte / 255
};

/// Writes (byte / 255 - mean) / deviation for every byte.
void scale_pixels(std::span<const std::uint8_t> bytes, PixelScale scale, float* out);

}  // namespace lockstep::data
