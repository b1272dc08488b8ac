// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>

#include <array>
#include <cstdint>

namespace lockstep::data {

/// The parameters of color_jitter. Kinds: 0 brightness, 1 contrast, 2 saturation, 3 hue.
struct ColorJitter {
  std::array<std::int8_t, 4> order = {0, 1, 2, 3};  ///< order of the kinds
  std::array<bool, 4> uses = {};                    ///< whether each kind is applied
  std::array<double, 4> factors = {};               ///< factor of each kind
};

void apply_jitter(Image& image, const ColorJitter& drawn);

}  // namespace lockstep::data
