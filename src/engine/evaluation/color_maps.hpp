// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// The colors of values in pictures of fields.
namespace lockstep::engine {

using MapColor = std::array<std::uint8_t, 3>;  ///< red, green and blue

/// Colors at equal distances, between which colors are interpolated.
using ColorMap = std::span<const MapColor>;

/// Colors of values: dark blue, green and yellow, in equal steps of lightness, so that readers who cannot distinguish
/// red and green see the order, too.
ColorMap sequential_map();

/// Colors of errors: blue below 0, light gray at 0, red above, with the same lightness at the same distance from 0.
ColorMap diverging_map();

inline constexpr MapColor kGapColor = {160, 160, 160};  ///< color of a value that does not exist

/// @param share  position in the map, 0 = first color, 1 = last color; values outside count as the nearest end; NaN =
///               kGapColor
MapColor color_at(ColorMap map, double share);

/// "#rrggbb" of each color.
std::vector<std::string> texts_of(ColorMap map);

}  // namespace lockstep::engine
