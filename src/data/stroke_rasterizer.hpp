// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::data {

inline constexpr int kDigitSide = 28;  ///< pixels
inline constexpr std::size_t kDigitPixels = std::size_t{kDigitSide} * kDigitSide;

using DigitImage = std::array<std::uint8_t, kDigitPixels>;  ///< row by row; 0 is paper, 255 full ink

/// The identity of a drawn digit: the image is a pure function of it.
struct DigitName {
  std::uint64_t seed;
  std::uint64_t split;  ///< 0 training, 1 test
  std::uint64_t index;
};

/// Draws a digit with a pen of random width, each point of its strokes displaced, under a random affine map, with
/// noise.
///
/// Only sums, products, quotients and square roots are used, which IEEE 754 rounds exactly: every machine draws the
/// same.
/// @param digit  in [0, 9]
DigitImage draw_digit(int digit, const DigitName& name);

}  // namespace lockstep::data
