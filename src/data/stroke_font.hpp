// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <vector>

namespace lockstep::data {

struct StrokePoint {
  float x;
  float y;
};

/// One stroke of the pen. Coordinates run right from 0 to 70 and down from 0 to 100.
struct Stroke {
  enum class StrokeForm {
    line,
    curve,
    loop
  };  ///< straight pieces; a smooth curve through the points; the same, closed
  StrokeForm shape;
  std::vector<StrokePoint> points;
};

using Glyph = std::vector<Stroke>;

/// The ways to write a digit.
/// @param digit  in [0, 9]
std::span<const Glyph> glyphs_of(int digit);

}  // namespace lockstep::data
