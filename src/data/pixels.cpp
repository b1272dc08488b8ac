// SPDX-License-Identifier: BSD-3-Clause
#include "data/pixels.hpp"

#include <cstddef>

namespace lockstep::data {

void scale_pixels(std::span<const std::uint8_t> bytes, PixelScale scale, float* out) {
  const float factor = 1 / (255 * scale.deviation);
  const float offset = -scale.mean / scale.deviation;
  for (std::size_t i = 0; i < bytes.size(); ++i) out[i] = static_cast<float>(bytes[i]) * factor + offset;
}

}  // namespace lockstep::data
